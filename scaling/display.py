"""What a person sees while a grid runs: bars on a terminal, plain lines elsewhere."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from scaling.cells import Cell

_PLAIN_SECONDS = 10.0


def duration(seconds: float | None) -> str:
    """A duration for people: 8 s, 3 min, 2.5 h, 3.1 d."""
    if seconds is None:
        return "?"
    for limit, unit, size in ((100, "s", 1), (6000, "min", 60), (48 * 3600, "h", 3600)):
        if seconds < limit:
            value = seconds / size
            return f"{value:.1f} {unit}" if unit == "h" else f"{value:.0f} {unit}"
    return f"{seconds / 86400:.1f} d"


class Display:
    """Follows a grid; use as a context, and pass `listen` to `run_grid`."""

    def __init__(self, console: Console, n_cells: int):
        self._console, self._n_cells, self._finished = console, n_cells, 0
        self._started: dict[str, float] = {}
        self._first_step: dict[str, tuple[int, float]] = {}
        self._last_line: dict[str, float] = {}
        self._tasks: dict[str, int] = {}
        self._bars = Progress(
            TextColumn("{task.description:<34}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self):
        self._bars.start()
        self._grid = self._bars.add_task("grid", total=self._n_cells, detail=f"0/{self._n_cells}")
        return self

    def __exit__(self, *_):
        self._bars.stop()

    def listen(self, cell: Cell, kind: str, payload) -> None:
        """Shows one event of `run_grid`."""
        if kind == "start":
            self._started[cell.id] = time.monotonic()
            self._tasks[cell.id] = self._bars.add_task(
                cell.key, total=cell.steps, detail="compiling"
            )
        elif kind == "step":
            self._step(cell, payload)
        else:
            self._end(cell, kind, payload)

    def _step(self, cell: Cell, event: dict) -> None:
        now = time.monotonic()
        step0, time0 = self._first_step.setdefault(cell.id, (event["step"], now))
        done = event["step"] - step0
        rate = done / (now - time0) if done else None
        left = duration((cell.steps - event["step"]) / rate if rate else None)
        speed = f"{rate * cell.tokens_per_step:,.0f} tok/s" if rate else "..."
        detail = f"loss {event['loss']:.3f}  {speed}  {left} left"
        self._bars.update(self._tasks[cell.id], completed=event["step"], detail=detail)
        quiet = now - self._last_line.setdefault(cell.id, now)
        if not self._console.is_terminal and quiet >= _PLAIN_SECONDS:
            self._last_line[cell.id] = now
            self._console.print(f"{cell.key}: step {event['step']}/{cell.steps}  {detail}")

    def _end(self, cell: Cell, kind: str, reason: str) -> None:
        self._finished += 1
        self._bars.remove_task(self._tasks.pop(cell.id))
        self._bars.update(
            self._grid, completed=self._finished, detail=f"{self._finished}/{self._n_cells}"
        )
        took = duration(time.monotonic() - self._started[cell.id])
        end = f"done in {took}" if kind == "done" else f"failed: {reason}"
        self._console.print(
            f"[{self._finished}/{self._n_cells}] {cell.key}: {end}", highlight=False, markup=False
        )
