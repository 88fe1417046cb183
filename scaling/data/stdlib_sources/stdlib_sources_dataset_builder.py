"""The TFDS builder; TFDS takes the data set's name from the folder."""

from pathlib import Path

import tensorflow_datasets as tfds

from scaling.data.split import digest, split_by_content
from scaling.data.stdlib_sources import listing


class Builder(tfds.core.GeneratorBasedBuilder):
    """The Python standard library's own sources, one file a document."""

    VERSION = tfds.core.Version(listing.VERSION)
    RELEASE_NOTES = {"1.0.0": "First release."}
    # TFDS's own way to find this imports importlib_resources, which it does not depend on.
    code_path = Path(__file__)

    def __init__(self, *, config=None, file_format="array_record", **kwargs):
        # A config is never left out, so two Pythons never share a build.
        config = config or tfds.core.BuilderConfig(name=listing.config_name())
        super().__init__(config=config, file_format=file_format, **kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="The .py files of the standard library of one Python.",
            features=tfds.features.FeaturesDict(
                {"path": tfds.features.Text(), "text": tfds.features.Text()}
            ),
            license="PSF-2.0",
        )

    def _split_generators(self, dl_manager):
        sources = listing.read_sources()
        held_out = split_by_content([digest(text.encode()) for _, text in sources])
        train = [s for s, held in zip(sources, held_out, strict=True) if not held]
        validation = [s for s, held in zip(sources, held_out, strict=True) if held]
        return {
            "train": self._generate_examples(train),
            "validation": self._generate_examples(validation),
        }

    def _generate_examples(self, sources):
        for path, text in sources:
            yield path, {"path": path, "text": text}
