"""metrics.jsonl: one line a logged step, each the mean over the steps since the last."""

import json
import os
from pathlib import Path
from typing import TextIO


class Metrics:
    """Appends to a cell's metrics; a resumed run first drops what lies after its checkpoint.

    Without a path nothing is written: on several hosts, the file is process 0's.
    """

    def __init__(self, path: Path | None, resumed_step: int, every: int):
        self._every = every
        self._losses: list[float] = []
        self._file = None if path is None else _continued(path, resumed_step)

    def add(self, step: int, loss: float) -> bool:
        """Takes one step's loss; true when a line is due."""
        self._losses.append(loss)
        return step % self._every == 0

    def write(self, step: int, **fields: float) -> None:
        """Writes a line with the mean loss of the steps since the last one."""
        if self._losses and self._file:
            loss = sum(self._losses) / len(self._losses)
            self._file.write(json.dumps({"step": step, "loss": loss, **fields}) + "\n")
        self._losses.clear()

    def close(self) -> None:
        """Closes the file."""
        if self._file:
            self._file.close()


def _continued(path: Path, step: int) -> TextIO:
    """The file without what lies after `step`, open at its end."""
    kept = _lines_until(path, step)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text("".join(kept), encoding="utf-8")
    os.replace(temporary, path)
    return path.open("a", encoding="utf-8", buffering=1)


def _lines_until(path: Path, step: int) -> list[str]:
    kept = []
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line)
            except (ValueError, KeyError, TypeError):
                break  # torn by a kill; nothing after it counts
    return kept
