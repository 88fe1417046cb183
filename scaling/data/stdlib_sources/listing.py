"""Which files the data set is made of, and the name of a build of it."""

import hashlib
import os
import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from scaling.errors import UserError

VERSION = "1.0.0"
MIN_BYTES = 1_000_000
_SKIPPED = ("site-packages", "dist-packages", "__pycache__")


def stdlib_dir() -> Path:
    """The folder of the standard library of the Python that runs this."""
    return Path(sysconfig.get_paths()["stdlib"])


def list_sources() -> list[tuple[str, int]]:
    """(path under the standard library, bytes) of each source, in the order of the paths."""
    root = stdlib_dir()
    return sorted(_walk(str(root), "")) if root.is_dir() else []


def config_name() -> str:
    """The TFDS config of this Python: its version, and a hash of the files it ships.

    The hash keeps apart builds of one version whose distributors left out different parts.
    """
    listing = hashlib.sha256(repr(list_sources()).encode()).hexdigest()[:8]
    return f"py{platform.python_version()}-{listing}"


def read_sources() -> list[tuple[str, str]]:
    """(path, text) of each source that is UTF-8 and not empty.

    Raises:
      UserError: less than 1 MB of text, as where the standard library is in a zip file.
    """
    sources = []
    for path, _ in list_sources():
        try:
            text = (stdlib_dir() / path).read_bytes().decode()
        except (UnicodeDecodeError, PermissionError):
            continue  # some of the library's tests are invalid text on purpose
        if text:
            sources.append((path, text))
    n_bytes = sum(len(text.encode()) for _, text in sources)
    if n_bytes < MIN_BYTES:
        raise UserError(
            f"tfds:stdlib_sources found {n_bytes} bytes of Python source in {stdlib_dir()} and "
            f"needs {MIN_BYTES}: use a Python with its library unpacked, or files:PATH"
        )
    return sources


def _walk(folder: str, under: str) -> Iterator[tuple[str, int]]:
    for entry in os.scandir(folder):
        name = f"{under}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            # config-* and _sysconfigdata*.py hold paths of the machine that built this Python.
            if entry.name not in _SKIPPED and not entry.name.startswith("config-"):
                yield from _walk(entry.path, f"{name}/")
        elif (
            entry.name.endswith(".py")
            and not entry.name.startswith("_sysconfigdata")
            and entry.is_file(follow_symlinks=False)
        ):
            yield name, entry.stat().st_size
