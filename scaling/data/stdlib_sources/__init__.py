"""A TFDS data set of the Python standard library's own sources.

Light: the builder, which imports TFDS, is in `stdlib_sources_dataset_builder`.
"""

from scaling.data.stdlib_sources.listing import VERSION, config_name, read_sources

__all__ = ["VERSION", "config_name", "read_sources"]
