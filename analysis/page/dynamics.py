"""What went on inside each cell: magnitudes by depth, and the weights of depth attention."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.dynamics import read_file, source_names
from analysis.errors import Refusal
from analysis.page.compact import rounded
from analysis.page.study import CellState, Study

MOST_STEPS = 5  # of a metric, evenly over the run, the last among them
BUDGET = 2_000_000  # bytes of the page, about
ALPHA_UNIT = 1e-3
DELTA_UNIT = 1e-5  # nats


def dynamics(study: Study, read: Callable[[Path], dict | None]) -> dict:
    """Of every cell that recorded them: metrics by sublayer, alpha, and the ablation beside it.

    First seeds come first, so that every variant still has a cell where the page would grow too
    large. `read` is `read_cell`, or the same with a memory.
    """
    found, notes, size, left_out = {}, [], 0, 0
    cells = study.cells if study.directory else ()
    for cell in sorted(cells, key=lambda c: _rank(cells, c)):
        try:
            made = read(study.directory / cell.id)
        except Refusal as reason:
            notes.append(f"No dynamics of {cell.id}: {reason}")
            continue
        if made is None:
            continue
        if "damaged" in made:
            notes.append(f"No ablation of {cell.id}: {made.pop('damaged')}")
        size += _bytes(made)
        if size > BUDGET:
            left_out += 1
        else:
            found[cell.id] = made
    if left_out:
        notes.append(
            f"The dynamics of {left_out} cells are left out to keep the page small; "
            "dynamics.parquet in each cell's folder has them."
        )
    if not found and not notes:
        notes.append("No dynamics recorded.")
    return {"cells": found, "notes": notes}


def _rank(cells: tuple[CellState, ...], cell: CellState) -> int:
    """Which of its size's seeds it is."""
    return sorted({c.seed for c in cells if c.size == cell.size}).index(cell.seed)


def read_cell(directory: Path) -> dict | None:
    """What one cell's folder holds, for the page; None where nothing was recorded.

    Raises:
      Refusal: a file is damaged.
    """
    if not (directory / "dynamics.parquet").is_file():
        return None
    frame = read_file(directory / "dynamics.parquet", "dynamics").to_pandas()
    if frame.empty:
        return None
    made = {"depth": _depth(frame)}
    alpha = frame[(frame["metric"] == "alpha") & (frame["source"] >= 0)]
    if len(alpha):
        last = alpha[alpha["step"] == alpha["step"].max()]
        made["alpha"] = {"step": int(last["step"].iloc[0])} | _map(last, "value", ALPHA_UNIT)
        n_sources, n_sublayers = made["alpha"]["n_sources"], int(last["sublayer"].max())
        made["alpha"]["names"] = source_names(n_sources, n_sublayers)
        if (directory / "ablation.parquet").is_file():
            try:
                made["ablation"] = _ablation(directory / "ablation.parquet")
            except Refusal as reason:  # weights are drawn without
                made["damaged"] = str(reason)
    return made


def _ablation(path: Path) -> dict:
    """Mode -> map, and the number of tokens that it was measured on."""
    rows = read_file(path, "ablation").to_pandas()
    return {
        str(mode): _map(of_mode, "delta", DELTA_UNIT) | {"tokens": int(of_mode["tokens"].max())}
        for mode, of_mode in rows[rows["source"] >= 0].groupby("mode", sort=False)
    }


def _depth(frame: pd.DataFrame) -> list[dict]:
    """Each metric and site by sublayer, at a few steps."""
    frame = frame[(frame["source"] < 0) & (frame["sublayer"] >= 0)]
    kinds, names = pd.factorize(frame["metric"] + "\0" + frame["site"])
    columns = [frame[c].to_numpy() for c in ("step", "sublayer", "value")]
    rows = []
    for kind, name in enumerate(names):
        step, sublayer, value = (column[kinds == kind] for column in columns)
        steps, sublayers = np.unique(step), np.unique(sublayer)
        chosen = steps[np.unique(np.linspace(0, len(steps) - 1, MOST_STEPS).astype(int))]
        grid = np.full((len(chosen), len(sublayers)), np.nan)
        kept = np.isin(step, chosen)
        at = np.searchsorted(chosen, step[kept]), np.searchsorted(sublayers, sublayer[kept])
        grid[at] = value[kept]
        metric, site = name.split("\0")
        rows.append(
            {
                "metric": metric,
                "site": site,
                "sublayers": sublayers.tolist(),
                "steps": chosen.tolist(),
                "values": [rounded(line, 4) for line in grid],
            }
        )
    return rows


def _map(rows: pd.DataFrame, column: str, unit: float) -> dict:
    """[sublayer, source] in whole units, each row as long as its last source; else None."""
    sites, names = pd.factorize(rows["site"])
    sublayers, source = rows["sublayer"].to_numpy(int), rows["source"].to_numpy(int)
    reads, at = np.unique(np.stack([sublayers, sites], axis=1), axis=0, return_inverse=True)
    grid = np.full((len(reads), source.max() + 1), np.nan)
    grid[at.ravel(), source] = rows[column].to_numpy(float) / unit
    ends = np.where(np.isfinite(grid), np.arange(1, grid.shape[1] + 1), 0).max(axis=1)
    return {
        "sublayers": reads[:, 0].tolist(),
        "sites": [str(names[i]) for i in reads[:, 1]],
        "n_sources": grid.shape[1],
        "unit": unit,
        "rows": [
            [round(v) if math.isfinite(v) else None for v in line[:end].tolist()]
            for line, end in zip(grid, ends, strict=True)
        ],
    }


def _bytes(made: dict) -> int:
    """About how many the page grows by."""
    maps = [made.get("alpha"), *made.get("ablation", {}).values()]
    depth = sum(len(line) for row in made["depth"] for line in row["values"])
    return 7 * depth + 5 * sum(len(line) for m in maps if m for line in m["rows"])
