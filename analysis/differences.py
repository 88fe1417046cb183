"""Every variant's loss against the baseline's at equal size, paired by seed."""

from dataclasses import dataclass

import pandas as pd

from analysis.cells import pair, require_loaded
from analysis.stats import Estimate, mean_interval
from analysis.table import baseline as baseline_of


@dataclass(frozen=True)
class Difference:
    """One variant at one size."""

    size: str
    variant: str
    loss: float  # mean over its seeds, nats
    n_seeds: int  # of the variant
    difference: float | None  # L_variant - L_base, nats; None without a partner
    interval: Estimate | None  # over seeds that both have; None with fewer than two of them


def differences(
    df: pd.DataFrame, baseline: str | None = None, level: float = 0.95
) -> list[Difference]:
    """Mean losses by size and their differences to the baseline's, best variant of a size first.

    Differences are means over the seeds that both variants have, whose common noise cancels, with t
    intervals of n_seeds - 1 degrees of freedom; see `analysis.cells.pair`. They compare losses at
    equal size, not at equal compute.

    Args:
        df: from `analysis.load`.
        baseline: default "prenorm" or "baseline".
        level: of the intervals.

    Raises:
        Refusal: "missing-variant", "no-baseline".
    """
    require_loaded(df)
    base = baseline_of(df, baseline)
    rows = []
    for variant in df["variant"].unique():
        own = df[df["variant"] == variant]
        pairs = pair(df, [base, variant])
        at = {size: i for i, size in enumerate(pairs.sizes)} if variant != base else {}
        for size, runs in own.groupby("size", sort=False):
            i, difference, interval = at.get(size), None, None
            if i is not None:
                b, v = pairs.losses[base][i], pairs.losses[variant][i]
                difference = float(v.mean() - b.mean())
                if pairs.seeds_paired[i] and len(b) > 1:
                    interval = mean_interval(v - b, level)
            loss, n = float(runs["loss"].mean()), len(runs)
            rows.append(Difference(str(size), variant, loss, n, difference, interval))
    compute = df.groupby("size")["pflops_days"].min()
    return sorted(rows, key=lambda row: (compute[row.size], row.loss))
