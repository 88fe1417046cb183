"""From the files of running cells to their trackers."""

import json
from collections.abc import Callable
from pathlib import Path

from scaling.cells import Cell
from scaling.ledger import Ledger
from scaling.trackers import Tracker, open_tracker


class Tracking:
    """Listens to a grid and passes on what its cells wrote; see `scaling.trackers`.

    A tracker that fails is told of once and left out: it never stops a run.
    """

    def __init__(self, names: list[str], ledger: Ledger, say: Callable[[str], None]):
        self._names, self._ledger, self._say = list(names), ledger, say
        self._open: dict[str, list[tuple[str, Tracker]]] = {}
        self._sent: dict[str, int] = {}  # bytes of a cell's metrics

    def listen(self, cell: Cell, kind: str, payload) -> None:
        """Takes one event of `run_grid`."""
        if kind == "start":
            self._start(cell)
        elif kind == "step":
            self._forward(cell)
        else:
            self._forward(cell)
            record, _ = self._ledger.summary(cell)
            numbers = _numbers(record) if record else None
            self._each(cell, lambda tracker: tracker.finish(numbers))
            self._open.pop(cell.id, None)

    def _start(self, cell: Cell) -> None:
        self._open[cell.id], self._sent[cell.id] = [], 0
        for name in list(self._names):
            try:
                tracker = open_tracker(name, cell, self._ledger.directory(cell))
            except Exception as error:
                self._drop(name, error)
            else:
                self._open[cell.id].append((name, tracker))

    def _forward(self, cell: Cell) -> None:
        if not self._open.get(cell.id):
            return
        path = self._ledger.directory(cell) / "metrics.jsonl"
        for line in self._new_lines(cell, path):
            values = _numbers(line)
            step = int(values.pop("step", 0))

            def send(tracker, step=step, values=values):
                if step > tracker.last_step:
                    tracker.log(step, values)

            self._each(cell, send)

    def _new_lines(self, cell: Cell, path: Path) -> list[dict]:
        """Whole lines since the last call. A resumed run begins its file anew."""
        try:
            with path.open("rb") as file:
                file.seek(self._sent[cell.id])
                data = file.read()
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._sent[cell.id] += len(whole)
        return [json.loads(line) for line in whole.splitlines()]

    def _each(self, cell: Cell, act: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._open.get(cell.id, [])):
            try:
                act(tracker)
            except Exception as error:
                self._drop(name, error)

    def _drop(self, name: str, error: Exception) -> None:
        if name in self._names:
            self._names.remove(name)
            self._say(f"Tracker {name} is left out: {error}")
        for cell_id, trackers in self._open.items():
            self._open[cell_id] = [(n, t) for n, t in trackers if n != name]


def _numbers(record: dict) -> dict[str, float]:
    """What a tracker can draw."""
    return {k: v for k, v in record.items() if isinstance(v, int | float) and v is not True}
