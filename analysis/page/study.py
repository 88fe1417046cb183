"""What a page has to know of a study beyond its table of results; whoever trains it fills it in."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class CellState:
    """One cell of the grid and how far it is."""

    id: str  # its folder
    size: str
    variant: str
    seed: int
    state: str  # "done", "running", "pending" or "failed"
    step: int = 0
    steps: int = 0
    seconds_left: float | None = None
    note: str = ""  # why it failed, or what a person should know
    config: dict = field(default_factory=dict)  # its entry in grid.json
    tokens_per_step: int = 0
    flops: dict[str, float] = field(default_factory=dict)  # convention -> FLOPs of the whole run


@dataclass(frozen=True)
class Study:
    """A run directory, or a table that has none."""

    name: str
    directory: Path | None = None
    cells: tuple[CellState, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)  # "baseline", "attnres_full", ... -> label
    conventions: dict[str, str] = field(default_factory=dict)  # what each counts, in words
    problems: tuple[str, ...] = ()  # sentences, such as why there is no grid
