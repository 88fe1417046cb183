"""Page faults are a third of a small model's step on CPU; these settings of glibc avoid them.

XLA allocates and frees its temporary buffers at every step. By default glibc hands large ones back
to the kernel at once, which then has to clear each page of them anew. glibc reads its settings when
a process starts, so that they take effect in processes started after `keep_memory`.
"""

import os

_SETTINGS = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**33),
    "MALLOC_TOP_PAD_": str(2**26),
    # For what does not fit into a thread's arena of 64 MiB: fewer and larger pages.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


def keep_memory() -> bool:
    """Sets what the user has not set; true if anything was."""
    missing = {name: value for name, value in _SETTINGS.items() if name not in os.environ}
    os.environ.update(missing)
    return bool(missing)
