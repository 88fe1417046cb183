"""The run directory: which cells a study has, and what has become of each.

runs/<study>/grid.json              every cell launched so far, resolved
runs/<study>/<cell>/config.json     the cell, as it was started
                   /metrics.jsonl   one line a logged step
                   /checkpoints/    resumable states
                   /failed.json     why it stopped, if it did
                   /summary.json    its result: written last, at once, with a checksum

On several hosts process 0 alone writes it; the methods that write do nothing in the others.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from scaling.cells import Cell
from scaling.errors import UserError
from scaling.files import is_held, read_json, write_json
from scaling.multihost import is_lead

Kind = Literal["pending", "running", "done", "failed"]


@dataclass(frozen=True)
class Status:
    """Where a cell stands. `step` is the last one logged; `note` says what a person should know."""

    kind: Kind
    step: int = 0
    seconds_left: float | None = None
    note: str = ""


class Ledger:
    """The directory of one study's runs."""

    def __init__(self, root: str | Path):
        self.root = Path(root)

    def directory(self, cell: Cell) -> Path:
        """The folder of one cell."""
        return self.root / cell.id

    def lock_path(self, cell: Cell | None = None) -> Path:
        """The lock of a cell, or of the whole study."""
        return (self.directory(cell) if cell else self.root) / ".lock"

    def cells(self) -> list[Cell]:
        """Every cell launched so far.

        Raises:
          UserError: the directory holds no readable grid.
        """
        grid = read_json(self.root / "grid.json")
        try:
            return [Cell.model_validate(entry) for entry in grid["cells"]]
        except (TypeError, KeyError, ValueError) as error:
            raise UserError(
                f"{self.root} holds no study: its grid.json is missing or damaged. "
                "Give the folder that `scaling launch` wrote, such as runs/demo."
            ) from error

    def known(self) -> list[Cell]:
        """The cells launched so far, none where the directory is new."""
        return self.cells() if (self.root / "grid.json").exists() else []

    def check(self, cells: list[Cell]) -> None:
        """Makes sure that cells may join the grid.

        Raises:
          UserError: a cell of the same size, variant and seed is there with another configuration.
        """
        known = {cell.key: cell for cell in self.known()}
        for cell in cells:
            old = known.get(cell.key)
            if old is not None and old.digest != cell.digest:
                raise UserError(
                    f"{self.root} already holds {cell.key} with another configuration "
                    f"({_difference(old, cell)}); two configurations are never mixed in one study. "
                    "Give another --out, or another name in the study file, or delete that folder."
                )

    def add(self, cells: list[Cell], baseline: str) -> None:
        """Adds cells to the grid, after `check`."""
        self.check(cells)
        merged = {cell.key: cell for cell in [*self.known(), *cells]}
        entries = [cell.model_dump(mode="json") for cell in merged.values()]
        write_json(self.root / "grid.json", {"baseline": baseline, "cells": entries})

    def summary(self, cell: Cell) -> tuple[dict | None, str]:
        """(the result of a finished cell or None, what is wrong with its summary or "")."""
        path = self.directory(cell) / "summary.json"
        if not path.exists():
            return None, ""
        record = read_json(path)
        if not isinstance(record, dict) or "checksum" not in record:
            return None, "summary.json is truncated or damaged; the cell counts as unfinished"
        if record["checksum"] != _checksum(record):
            return (
                None,
                "summary.json was edited after it was written; the cell counts as unfinished",
            )
        if record.get("digest") != cell.digest:
            return None, "summary.json is of another configuration; the cell counts as unfinished"
        return record, ""

    def write_config(self, cell: Cell) -> None:
        """Marks a cell as begun, again if it had failed."""
        if not is_lead():
            return
        (self.directory(cell) / "failed.json").unlink(missing_ok=True)
        write_json(self.directory(cell) / "config.json", cell.model_dump(mode="json"))

    def write_summary(self, cell: Cell, record: dict) -> None:
        """Marks a cell as done; the last thing that happens to it."""
        record = {**record, "digest": cell.digest, "rate_swept_for": cell.rate_swept_for}
        (self.directory(cell) / "failed.json").unlink(missing_ok=True)
        path = self.directory(cell) / "summary.json"
        write_json(path, {**record, "checksum": _checksum(record)})

    def write_failure(self, cell: Cell, reason: str) -> None:
        """Marks a cell as failed, with a reason in a few words."""
        if not is_lead():
            return
        write_json(self.directory(cell) / "failed.json", {"reason": reason})

    def status(self, cell: Cell) -> Status:
        """Where the cell stands now, whoever is running it."""
        record, problem = self.summary(cell)
        if record is not None:
            return Status("done", cell.steps)
        last = last_metrics(self.directory(cell))
        step = last.get("step", 0)
        if is_held(self.lock_path(cell)):
            left = last["seconds"] / step * (cell.steps - step) if step else None
            return Status("running", step, left, problem)
        if (self.directory(cell) / "failed.json").exists():
            failure = read_json(self.directory(cell) / "failed.json")
            reason = failure.get("reason") if isinstance(failure, dict) else None
            return Status("failed", step, note=reason or "its failed.json is damaged")
        return Status(
            "pending", step, note=problem or (f"interrupted at step {step}" if step else "")
        )


def last_metrics(directory: Path) -> dict:
    """The last whole line of a metrics file, or {}."""
    try:
        with (directory / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - 4096))
            lines = file.read().splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and {"step", "seconds"} <= record.keys():
            return record
    return {}


def _checksum(record: dict) -> str:
    content = {key: value for key, value in record.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _difference(old: Cell, new: Cell) -> str:
    """The first field that differs, with both values."""

    def walk(a: dict, b: dict, path: str) -> str | None:
        for key in {**a, **b}:
            if isinstance(a.get(key), dict) and isinstance(b.get(key), dict):
                found = walk(a[key], b[key], f"{path}{key}.")
                if found:
                    return found
            elif a.get(key) != b.get(key):
                return f"{path}{key} is {a.get(key)} there and {b.get(key)} here"
        return None

    return walk(old.identity, new.identity, "") or "unknown difference"
