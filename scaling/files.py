"""Files that are either whole or not there, and locks that end with their holder."""

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """`write_bytes` of text in UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file at once: a reader, or a crash, sees the old content or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        # Nobody knows the temporary file.
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def write_json(path: Path, value: Any) -> None:
    """`write_text` of indented JSON; NaN, which is no JSON, raises ValueError."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any | None:
    """The content, or None where the file is missing or no whole JSON document."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


class HeldError(Exception):
    """The lock is another process's."""


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Holds a lock file; the kernel releases it when this process ends, however it ends.

    Raises:
      HeldError: another process holds it; the message names the process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        for patience in (0.05, 0.2, 0.5, None):  # is_held takes the lock for an instant
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if patience is None:
                    file.seek(0)
                    raise HeldError(file.read().strip() or "another process") from None
                time.sleep(patience)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def is_held(path: Path) -> bool:
    """Whether some process holds the lock file now."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
