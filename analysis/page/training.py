"""Loss by step of every cell, few enough points to draw, and its difference to the baseline's."""

from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import numpy as np

from analysis.page.compact import rounded
from analysis.page.logs import Log, read_log
from analysis.page.study import CellState, Study
from analysis.stats import t_quantile
from analysis.table import FLOP_PER_PFLOPS_DAY

MOST_POINTS = 300  # of a curve; above it, 150 buckets with their mean, least and greatest
N_BUCKETS = 150
N_DIFFERENCES = 80  # buckets of a difference, whose noise hides it otherwise
LEVEL = 0.95


def training(study: Study, index: dict, read: Callable[[Path], Log] = read_log) -> dict:
    """Curves of all cells that logged a loss, means over seeds, sentences on what is damaged."""
    if study.directory is None:
        return {"sizes": [], "runs": [], "means": [], "notes": []}
    logs = {c.id: read(study.directory / c.id / "metrics.jsonl") for c in study.cells}
    logged = [c for c in study.cells if len(logs[c.id].steps) and c.variant in index]
    notes = [
        f"{logs[c.id].damage} What comes before it is shown."
        for c in study.cells
        if logs[c.id].damage
    ]
    base = study.labels.get("baseline")
    bases = {(c.size, c.seed): logs[c.id] for c in logged if c.variant == base}
    sizes = list(dict.fromkeys(c.size for c in study.cells))
    runs = [_run(c, logs[c.id], bases.get((c.size, c.seed)), base, index) for c in logged]
    return {
        "sizes": sizes,
        "runs": runs,
        "means": _means(logged, logs, bases, base, index),
        "notes": notes,
    }


def _run(cell: CellState, log: Log, base: Log | None, baseline: str | None, index: dict) -> dict:
    run = {
        "cell": cell.id,
        "variant": index[cell.variant],
        "size": cell.size,
        "seed": str(cell.seed),
        "state": cell.state,
        "tokens_per_step": cell.tokens_per_step,
        "compute_per_step": {
            name: rounded(flops / FLOP_PER_PFLOPS_DAY / max(cell.steps, 1), 6)
            for name, flops in cell.flops.items()
        },
        "curve": thinned(log.steps, log.loss),
    }
    if base is not None and cell.variant != baseline:
        steps, difference = _difference(log, base)
        if len(steps):
            curve = thinned(steps, difference, N_DIFFERENCES, N_DIFFERENCES, digits=3)
            run["difference"] = {"s": curve["s"], "m": curve["m"]}  # one run's range is noise
    return run


def _difference(log: Log, base: Log) -> tuple[np.ndarray, np.ndarray]:
    steps, own, other = np.intersect1d(
        log.steps, base.steps, assume_unique=True, return_indices=True
    )
    return steps, log.loss[own] - base.loss[other]


def _means(logged: list[CellState], logs: dict, bases: dict, base: str | None, index: dict) -> list:
    """Of every size and variant with two seeds or more: mean, and mean paired difference."""
    found = []

    def key(c: CellState) -> tuple[str, str]:
        return c.size, c.variant

    order = {c.id: i for i, c in enumerate(logged)}
    for (size, variant), group in groupby(sorted(logged, key=key), key):
        cells = sorted(group, key=lambda c: order[c.id])
        curves = [(logs[c.id].steps, logs[c.id].loss) for c in cells]
        if len(curves) < 2 or not len(_shared(curves)):
            continue
        steps, losses = _aligned(curves)
        mean = {
            "variant": index[variant],
            "size": size,
            "n_seeds": len(curves),
            "tokens_per_step": cells[0].tokens_per_step,
            "compute_per_step": {
                name: rounded(flops / FLOP_PER_PFLOPS_DAY / max(cells[0].steps, 1), 6)
                for name, flops in cells[0].flops.items()
            },
            "curve": thinned(steps, losses.mean(axis=0)),
        }
        paired = [
            _difference(logs[c.id], bases[size, c.seed]) for c in cells if (size, c.seed) in bases
        ]
        if variant != base and len(paired) > 1 and len(_shared(paired)):
            mean["difference"] = _with_interval(*_aligned(paired))
        found.append(mean)
    return found


def _shared(curves: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    steps = curves[0][0]
    for others, _ in curves[1:]:
        steps = np.intersect1d(steps, others, assume_unique=True)
    return steps


def _aligned(curves: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Steps that all have, and [n_curves, n_steps] values there."""
    steps = _shared(curves)
    return steps, np.stack([values[np.searchsorted(own, steps)] for own, values in curves])


def _with_interval(steps: np.ndarray, values: np.ndarray) -> dict:
    """Bucket means over [n_seeds, n_steps], with a pointwise t interval over the seeds."""
    starts = _starts(len(steps), N_DIFFERENCES)
    counts = np.diff(np.r_[starts, len(steps)])
    by_seed = np.add.reduceat(values, starts, axis=1) / counts
    n = len(values)
    mean = by_seed.mean(axis=0)
    half = t_quantile(LEVEL, n - 1) * by_seed.std(axis=0, ddof=1) / np.sqrt(n)
    return {
        "s": _steps(steps, starts),
        "m": rounded(mean, 3),
        "lo": rounded(mean - half, 3),
        "hi": rounded(mean + half, 3),
        "interval": True,
    }


def thinned(
    steps: np.ndarray, loss: np.ndarray, most: int = MOST_POINTS, buckets: int = N_BUCKETS,
    digits: int = 5,
) -> dict:  # fmt: skip
    """A curve as it is or, of more than `most` points, by buckets: mean, least and greatest."""
    if len(steps) <= most:
        return {"s": steps.tolist(), "m": rounded(loss, digits)}
    starts = _starts(len(steps), buckets)
    counts = np.diff(np.r_[starts, len(steps)])
    return {
        "s": _steps(steps, starts),
        "m": rounded(np.add.reduceat(loss, starts) / counts, digits),
        "lo": rounded(np.minimum.reduceat(loss, starts), digits),
        "hi": rounded(np.maximum.reduceat(loss, starts), digits),
        "each": int(counts.max()),
    }


def _starts(n: int, buckets: int) -> np.ndarray:
    return np.unique(np.linspace(0, n, buckets, endpoint=False).astype(int))


def _steps(steps: np.ndarray, starts: np.ndarray) -> list[int]:
    """The middle of each bucket; of the last its end, so that a curve reaches as far as the run."""
    ends = np.r_[starts[1:], len(steps)] - 1
    middle = (steps[starts] + steps[ends]) // 2
    middle[-1] = steps[-1]
    return middle.tolist()
