"""Checkpoints: Orbax behind three functions, with a checksum for every file.

Orbax alone restores a flipped byte as a wrong number without a word, so that a manifest of sha256
sums, written after the save has been committed, decides what counts as a checkpoint. On several
hosts every process writes and reads its own shards, and process 0 alone does all the rest; the
arrays may be restored onto another mesh and by another number of processes.
"""

import hashlib
import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from scaling import multihost
from scaling.files import write_json

_KEEP = 2
_NAMED = 10  # leaves that a mismatch lists


class MismatchError(Exception):
    """The checkpoint is of other arrays than those wanted; the message lists the first ten."""


def save(directory: Path, step: int, state: Any, extra: dict) -> None:
    """Saves `state` and the JSON-able `extra` as of `step`, and drops all but the newest two.

    Args:
      directory: the checkpoints folder of one cell, held by this launch alone.
      step: optimizer steps done.
      state: a pytree of arrays, on the devices of all processes.
      extra: what else a resume needs.

    Raises:
      HostError: a process that did not finish its share in time.
    """
    directory = directory.absolute()
    target = directory / str(step)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(target, state, force=True)
        checkpointer.wait_until_finished()
    multihost.barrier(f"checkpoint of step {step}")
    if not multihost.is_lead():
        return
    manifest = {"files": _sums(target), "leaves": _leaves(state), "extra": extra}
    write_json(directory / f"{step}.json", manifest)
    kept = {name for new in sorted(steps(directory))[-_KEEP:] for name in (f"{new}.json", str(new))}
    for path in directory.iterdir():  # what a kill left behind goes too
        if path.name not in kept:
            _remove(path)


def restore(directory: Path, like: Any, clean: bool = True) -> tuple[int, Any, dict] | None:
    """The newest checkpoint whose files are all as they were written.

    Args:
      directory: the checkpoints folder of one cell.
      like: the state to restore into: arrays, or shapes with shardings. Their shardings need not
        be those of the arrays that were saved.
      clean: remove what was interrupted or is damaged, so that a later save of the same step
        starts clean; not for those who only read.

    Returns:
      (step, state, extra), or None where there is none.

    Raises:
      MismatchError: leaves that are there but not wanted, or wanted but not there, or of another
        shape or dtype.
      HostError: a process that is late.
    """
    directory = directory.absolute()
    found = multihost.decide(
        "which checkpoint to restore", lambda: _newest_intact(directory, clean)
    )
    if found is None:
        return None
    step, leaves, extra = found
    if leaves is not None:  # manifests did not always have them
        _compare(f"the checkpoint of step {step}", leaves, _leaves(like))
    with ocp.StandardCheckpointer() as checkpointer:
        state = checkpointer.restore(directory / str(step), jax.tree.map(_abstract, like))
    return step, state, extra


def steps(directory: Path) -> list[int]:
    """Steps for which a manifest stands; whether the files are intact is restore's to say."""
    if not directory.is_dir():
        return []
    return [int(path.stem) for path in directory.iterdir() if re.fullmatch(r"\d+\.json", path.name)]


def _newest_intact(directory: Path, clean: bool) -> tuple[int, dict | None, dict] | None:
    """(step, leaves, extra) of the newest manifest that holds."""
    for step in sorted(steps(directory), reverse=True):
        try:
            recorded = json.loads((directory / f"{step}.json").read_text())
            intact = recorded["files"] == _sums(directory / str(step)) != {} and "extra" in recorded
        except (OSError, ValueError, KeyError, TypeError):
            intact = False
        if intact:
            if clean:
                _remove_all_but(directory, step)
            return step, recorded.get("leaves"), recorded["extra"]
    if clean:
        _remove_all_but(directory, None)
    return None


def _leaves(state: Any) -> dict[str, str]:
    """Type and shape of each array, as in float32[8, 256], by its path in the tree."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): f"{leaf.dtype}{list(leaf.shape)}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
    }


def _compare(what: str, found: dict[str, str], wanted: dict[str, str]) -> None:
    different = [
        f"{path} is {found.get(path, 'absent')} there and {wanted.get(path, 'absent')} here"
        for path in {**wanted, **found}
        if found.get(path) != wanted.get(path)
    ]
    if different:
        more = len(different) - _NAMED
        rest = f"; and {more} more" if more > 0 else ""
        raise MismatchError(f"{what} is of another model: {'; '.join(different[:_NAMED])}{rest}")


def _abstract(x: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)


def _sums(folder: Path) -> dict[str, str]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return {
            str(path.relative_to(folder)): digest
            for path, digest in zip(paths, pool.map(_sha256, paths), strict=True)
        }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
