"""Checkpoints: Orbax behind three functions, with a checksum for every file.

Orbax alone restores a flipped byte as a wrong number without a word, so that a manifest of sha256
sums, written after the save has been committed, decides what counts as a checkpoint.
"""

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from scaling.files import write_json

_KEEP = 2


def save(directory: Path, step: int, state: Any, extra: dict) -> None:
    """Saves `state` and the JSON-able `extra` as of `step`, and drops all but the newest two.

    Args:
      directory: the checkpoints folder of one cell, held by this process alone.
      step: optimizer steps done.
      state: a pytree of arrays.
      extra: what else a resume needs.
    """
    directory = directory.absolute()
    target = directory / str(step)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(target, state, force=True)
        checkpointer.wait_until_finished()
    write_json(directory / f"{step}.json", {"files": _sums(target), "extra": extra})
    kept = {name for new in sorted(steps(directory))[-_KEEP:] for name in (f"{new}.json", str(new))}
    for path in directory.iterdir():  # what a kill left behind goes too
        if path.name not in kept:
            _remove(path)


def restore(directory: Path, like: Any) -> tuple[int, Any, dict] | None:
    """The newest checkpoint whose files are all as they were written.

    Args:
      directory: the checkpoints folder of one cell.
      like: the state to restore into: arrays, or shapes with shardings.

    Returns:
      (step, state, extra), or None where there is none. What was interrupted or is damaged is
      removed, so that a later save of the same step starts clean.
    """
    directory = directory.absolute()
    for step in sorted(steps(directory), reverse=True):
        manifest, folder = directory / f"{step}.json", directory / str(step)
        try:
            recorded = json.loads(manifest.read_text())
            intact = recorded["files"] == _sums(folder) != {} and "extra" in recorded
        except (OSError, ValueError, KeyError, TypeError):
            intact = False
        if intact:
            _remove_all_but(directory, step)
            with ocp.StandardCheckpointer() as checkpointer:
                state = checkpointer.restore(folder, jax.tree.map(_abstract, like))
            return step, state, recorded["extra"]
    _remove_all_but(directory, None)
    return None


def steps(directory: Path) -> list[int]:
    """Steps for which a manifest stands; whether the files are intact is restore's to say."""
    if not directory.is_dir():
        return []
    return [int(path.stem) for path in directory.iterdir() if re.fullmatch(r"\d+\.json", path.name)]


def _abstract(x: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)


def _sums(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _remove_all_but(directory: Path, step: int | None) -> None:
    """Deletes torn, damaged and newer-but-invalid entries; an older valid one may stay."""
    if not directory.is_dir():
        return
    good = {str(step), f"{step}.json"}
    for path in directory.iterdir():
        older = re.fullmatch(r"\d+(\.json)?", path.name) and step is not None
        if path.name in good or (older and int(path.name.split(".")[0]) < step):
            continue
        _remove(path)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
