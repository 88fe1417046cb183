"""From runs to the unit of analysis: one point a size, averaged over seeds, paired by size."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.errors import Refusal, listed

MIN_SIZES = 3


def require_loaded(df: pd.DataFrame) -> None:
    """Refuse a table that did not go through `analysis.load`."""
    missing = {"variant", "size", "seed", "loss", "pflops_days"} - set(df.columns)
    if missing:
        raise Refusal(
            "not-loaded",
            f"The table lacks {listed(sorted(missing))}. Pass it through analysis.load() first.",
        )


def size_means(df: pd.DataFrame, variant: str) -> pd.DataFrame:
    """Per size of one variant: mean ln loss, mean ln compute and number of seeds, by compute."""
    runs = df[df["variant"] == variant]
    logs = pd.DataFrame(
        {
            "size": runs["size"],
            "ln_loss": np.log(runs["loss"]),
            "ln_compute": np.log(runs["pflops_days"]),
            "n_seeds": 1,
        }
    )
    by_size = logs.groupby("size", sort=False)
    means = by_size[["ln_loss", "ln_compute"]].mean()
    means["n_seeds"] = by_size["n_seeds"].sum()
    return means.sort_values("ln_compute")


@dataclass(frozen=True)
class Pairs:
    """The sizes that two or more variants share, in order of compute.

    losses, ln_compute: {variant: [n_sizes] list of [n_seeds] arrays / [n_sizes]}, seeds aligned
    between variants where `seeds_paired`.
    """

    sizes: tuple[str, ...]
    dropped: tuple[str, ...]
    losses: dict[str, list[np.ndarray]]
    ln_compute: dict[str, np.ndarray]
    n_seeds: tuple[int, ...]
    seeds_paired: tuple[bool, ...]

    def ln_loss(self, variant: str) -> np.ndarray:
        """[n_sizes], mean over seeds of ln loss."""
        return np.array([np.log(v).mean() for v in self.losses[variant]])

    def loss(self, variant: str) -> np.ndarray:
        """[n_sizes], mean over seeds of the loss, nats."""
        return np.array([v.mean() for v in self.losses[variant]])


def pair(df: pd.DataFrame, variants: list[str]) -> Pairs:
    """Keep the sizes that all `variants` have and, at each, the seeds that all of them have.

    A seed fixes the order of the data, so runs of one size and seed share noise that cancels in
    their difference. Where the variants have no seed in common at a size, all of their seeds are
    averaged (the size still pairs them: same data, same rounding of N and D).
    """
    of, names = pd.factorize(df["variant"])
    size_of, size_names = pd.factorize(df["size"])
    columns = [df[column].to_numpy() for column in ("seed", "loss", "pflops_days")]
    runs = {}
    for variant in variants:
        chosen = of == names.get_indexer([variant])
        by_size = _seeds_by_size(size_of[chosen], [column[chosen] for column in columns])
        runs[variant] = {size_names[code]: cell for code, cell in by_size.items()}
    everywhere = set.intersection(*(set(by_size) for by_size in runs.values()))
    anywhere = list(dict.fromkeys(s for by_size in runs.values() for s in by_size))
    sizes = sorted(
        (s for s in anywhere if s in everywhere), key=lambda s: runs[variants[0]][s][2].mean()
    )
    losses = {v: [] for v in variants}
    ln_compute = {v: [] for v in variants}
    n_seeds, paired = [], []
    for size in sizes:
        cells = [runs[v][size] for v in variants]
        common, kept = _aligned([seeds for seeds, _, _ in cells])
        for variant, rows, (_, loss, compute) in zip(variants, kept, cells, strict=True):
            losses[variant].append(loss[rows])
            ln_compute[variant].append(compute[rows].mean())
        n_seeds.append(common or min(len(seeds) for seeds, _, _ in cells))
        paired.append(common > 0)
    return Pairs(
        tuple(sizes),
        tuple(s for s in anywhere if s not in everywhere),
        losses,
        {v: np.array(x) for v, x in ln_compute.items()},
        tuple(n_seeds),
        tuple(paired),
    )


def _seeds_by_size(size: np.ndarray, columns: list[np.ndarray]) -> dict[int, tuple]:
    """Of each size, in order of appearance: seeds, losses and ln compute."""
    code, present = pd.factorize(size)
    order, ends = np.argsort(code, kind="stable"), np.cumsum(np.bincount(code))[:-1]
    seeds, losses, compute = (np.split(column[order], ends) for column in columns)
    cells = zip(seeds, losses, map(np.log, compute), strict=True)
    return dict(zip(present.tolist(), cells, strict=False))  # without a run, one empty cell is left


def _aligned(seeds: list[np.ndarray]) -> tuple[int, list[np.ndarray | slice]]:
    """How many seeds all cells have, and where each has them; without any, all seeds of each."""
    if all(np.array_equal(s, seeds[0]) for s in seeds[1:]):
        return len(seeds[0]), [slice(None)] * len(seeds)
    rows = [{seed: i for i, seed in enumerate(s.tolist())} for s in seeds]
    shared = set(rows[0]).intersection(*rows[1:])
    common = [seed for seed in rows[0] if seed in shared]
    if not common:
        return 0, [slice(None)] * len(seeds)
    return len(common), [np.array([row[seed] for seed in common]) for row in rows]


def seed_weights(df: pd.DataFrame, variant: str) -> np.ndarray:
    """[n_sizes] one over the variance of mean ln loss that seeds leave, sizes by compute.

    For `fit_floors` and `fit_surface`. The variance of a run is pooled over sizes, so that a size
    of three seeds weighs three times one of a single seed; lack of fit, which seeds do not average
    out, would even them: with it, equal weights are right.

    Raises:
        Refusal: "no-replicates": no size has two seeds.
    """
    means, runs = size_means(df, variant), df[df["variant"] == variant]
    ln_loss = np.log(runs["loss"]) - np.log(runs["loss"]).groupby(runs["size"]).transform("mean")
    dof = len(runs) - len(means)
    if dof < 1:
        raise Refusal(
            "no-replicates", f"No size of '{variant}' has two seeds, which would tell their noise."
        )
    return means["n_seeds"].to_numpy() / (float(ln_loss @ ln_loss) / dof)


def require_sizes(n: int, what: str, sizes: object = ()) -> None:
    """Refuse fewer than three sizes: two points fix a power law and leave nothing to judge it."""
    if n < MIN_SIZES:
        raise Refusal(
            "too-few-sizes",
            f"{what} has {n} size{'' if n == 1 else 's'} ({listed(sizes)}); at least {MIN_SIZES} "
            "are needed for a fit with an interval. Add sizes to the study.",
        )


def require_compute_range(ln_compute: np.ndarray, what: str) -> None:
    """Refuse sizes that all have the same compute."""
    if np.ptp(ln_compute) < 1e-6:
        raise Refusal(
            "no-compute-range",
            f"All sizes of {what} have the same compute, so a slope cannot be fitted. "
            "Vary the model size or the number of tokens.",
        )
