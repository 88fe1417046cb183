"""Which code made a record."""

import functools
import subprocess
from importlib import metadata
from pathlib import Path


@functools.cache
def code_version() -> str:
    """The distribution's version, and the commit where the package runs from a git checkout."""
    version = metadata.version("residual-scaling-laws")
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return version
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        described = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return version
    return f"{version}+g{described.stdout.strip()}"
