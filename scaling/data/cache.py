"""Where prepared data lives, and how two processes share it."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from scaling.errors import UserError

_CANNOT_WRITE = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.ENOTDIR,
    errno.EEXIST,
)


def cache_root(cache_dir: str | os.PathLike | None = None) -> Path:
    """The folder of prepared data: the argument, `$SCALING_DATA_DIR`, or one under ~/.cache."""
    named = cache_dir or os.environ.get("SCALING_DATA_DIR")
    return Path(named or "~/.cache/residual-scaling-laws").expanduser().absolute()


def tfds_dir(root: Path) -> Path:
    """The folder of TFDS data sets: `$TFDS_DATA_DIR`, or one in the cache."""
    named = os.environ.get("TFDS_DATA_DIR")
    return Path(named).expanduser().absolute() if named else root / "tfds"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on a file; it is let go even if this process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def writing(root: Path) -> Iterator[None]:
    """Turns a full or read-only disk into one sentence."""
    try:
        yield
    except OSError as e:
        if e.errno in _CANNOT_WRITE:
            raise UserError(
                f"cannot write prepared data to {root} ({e.strerror}): "
                "make room there, or set SCALING_DATA_DIR to another folder"
            ) from e
        raise
