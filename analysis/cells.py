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

    loss, ln_compute: {variant: [n_sizes] list of [n_seeds] arrays / [n_sizes]}, seeds aligned
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
    columns = [df["variant"], df["size"], df["seed"], df["loss"], df["pflops_days"]]
    runs: dict[str, dict[str, dict]] = {v: {} for v in variants}
    for variant, size, seed, loss, compute in zip(*columns, strict=True):
        if variant in runs:
            runs[variant].setdefault(size, {})[seed] = (loss, np.log(compute))
    everywhere = set.intersection(*(set(by_size) for by_size in runs.values()))
    anywhere = list(dict.fromkeys(s for by_size in runs.values() for s in by_size))

    def compute_of(size):
        return np.mean([c for _, c in runs[variants[0]][size].values()])

    sizes = sorted((s for s in anywhere if s in everywhere), key=compute_of)
    losses = {v: [] for v in variants}
    ln_compute = {v: [] for v in variants}
    n_seeds, paired = [], []
    for size in sizes:
        cells = [runs[v][size] for v in variants]
        common = [s for s in cells[0] if all(s in c for c in cells)]
        for variant, cell in zip(variants, cells, strict=True):
            kept = [cell[s] for s in (common or cell)]
            losses[variant].append(np.array([loss for loss, _ in kept]))
            ln_compute[variant].append(np.mean([c for _, c in kept]))
        n_seeds.append(len(common) or min(len(c) for c in cells))
        paired.append(bool(common))
    return Pairs(
        tuple(sizes),
        tuple(s for s in anywhere if s not in everywhere),
        losses,
        {v: np.array(x) for v, x in ln_compute.items()},
        tuple(n_seeds),
        tuple(paired),
    )


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
