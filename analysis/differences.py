"""Every variant's loss against the baseline's at equal size, paired by seed."""

from dataclasses import dataclass

import pandas as pd

from analysis.cells import pair, require_loaded
from analysis.stats import Estimate, mean_interval


@dataclass(frozen=True)
class Difference:
    """One variant at one size."""

    size: str
    variant: str
    loss: float  # mean over its seeds, nats
    n_seeds: int  # of the variant
    difference: float | None  # L_variant - L_base, nats; None where the baseline was not run
    n_paired: int  # seeds that both have; with none, all of both are averaged
    interval: Estimate | None  # over paired seeds; None with fewer than two


def differences(df: pd.DataFrame, baseline: str, level: float = 0.95) -> list[Difference]:
    """Mean losses by size and their differences to the baseline's, best variant of a size first.

    Differences are means over the seeds that both variants have, whose common noise cancels, with t
    intervals of n_paired - 1 degrees of freedom; see `analysis.cells.pair`. They compare losses at
    equal size, not at equal compute.

    Args:
        df: from `analysis.load`.
        baseline: a variant; where the table lacks it, there are losses and no differences.
        level: of the intervals.
    """
    require_loaded(df)
    variants = list(df["variant"].unique())
    rows = []
    for variant in variants:
        comparable = variant != baseline and baseline in variants
        pairs = pair(df, [baseline, variant]) if comparable else None
        at = {size: i for i, size in enumerate(pairs.sizes)} if pairs else {}
        for size, runs in df[df["variant"] == variant].groupby("size", sort=False):
            i, difference, n_paired, interval = at.get(size), None, 0, None
            if i is not None:
                base, own = (pairs.losses[v][i] for v in (baseline, variant))
                difference = float(own.mean() - base.mean())
                n_paired = len(own) if pairs.seeds_paired[i] else 0
                interval = mean_interval(own - base, level) if n_paired > 1 else None
            rows.append(
                Difference(
                    str(size), variant, float(runs["loss"].mean()), len(runs), difference,
                    n_paired, interval,
                )
            )  # fmt: skip
    compute = df.groupby("size")["pflops_days"].min()
    return sorted(rows, key=lambda row: (compute[row.size], row.loss))
