"""What Block gives up against Full, in loss at equal size, and the share of the gain it keeps."""

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from analysis.cells import Pairs, pair, require_loaded
from analysis.errors import Refusal
from analysis.fieller import Ratio, ratio_of_means
from analysis.stats import Estimate, line, mean_interval, t_interval, t_quantile
from analysis.table import baseline as baseline_of
from analysis.table import require_variant

MOST_SEEDS = 1000


@dataclass(frozen=True)
class SizeGap:
    """One size. Intervals are over paired seeds and None with a single seed."""

    size: str
    pflops_days: float  # of Full
    loss_baseline: float
    loss_block: float
    loss_full: float
    gap: float  # L_block - L_full, nats
    gap_interval: Estimate | None
    share_kept: float | None  # (L_base - L_block) / (L_base - L_full); None if Full gains nothing
    n_seeds: int


@dataclass(frozen=True)
class Gap:
    """The gap between Full and Block at equal size (not at equal compute)."""

    full: str
    block: str
    baseline: str
    by_size: tuple[SizeGap, ...]
    pooled: Estimate | None  # mean gap over sizes, nats; None with one size
    share: Ratio  # of the mean gains over sizes, Fieller interval
    trend: Estimate | None  # of the gap, nats per factor of 10 in compute; None below three sizes
    separable: bool  # the pooled interval excludes 0
    seeds_needed: int | None  # a size, for a gap of this size to be told from 0; None: over 1,000
    dropped_sizes: tuple[str, ...]
    seeds_paired: bool
    flops_convention: str | None
    level: float
    notes: tuple[str, ...]
    interval: str = (
        "pooled: t interval over the sizes' mean gaps (n_sizes - 1 degrees of freedom), so a gap "
        "that changes with size widens it; by size: t interval over paired seeds; share: Fieller "
        "interval of the ratio of mean gains over sizes"
    )

    def to_dict(self) -> dict:
        """Plain numbers, strings, lists and dicts, at full precision."""
        return asdict(self)


def gap(
    df: pd.DataFrame,
    full: str = "attnres_full",
    block: str = "attnres_block",
    baseline: str | None = None,
    level: float = 0.95,
) -> Gap:
    """L_block - L_full by size and pooled, and the share of Full's gain that Block keeps.

    Sizes that the three variants share are used, with differences taken within a seed where they
    share seeds. (Setting: Attention Residuals, arXiv 2603.15031, Table 2.)

    Args:
        df: from `analysis.load`.
        full, block: the two variants.
        baseline: default "prenorm" or "baseline".
        level: of the intervals.

    Raises:
        Refusal: "missing-variant", "no-baseline", "same-variant", "no-common-size".
    """
    require_loaded(df)
    full, block = require_variant(df, full), require_variant(df, block)
    base = baseline_of(df, baseline)
    if len({full, block, base}) < 3:
        raise Refusal(
            "same-variant",
            f"Full ('{full}'), Block ('{block}') and the baseline ('{base}') must be three "
            "different variants.",
        )
    pairs = pair(df, [base, block, full])
    if not pairs.sizes:
        raise Refusal(
            "no-common-size",
            f"'{base}', '{block}' and '{full}' have no size in common, so there is no gap at "
            "equal size. Run all three at the same sizes.",
        )
    rows = []
    for i, size in enumerate(pairs.sizes):
        base_i, block_i, full_i = (pairs.losses[v][i] for v in (base, block, full))
        several = pairs.seeds_paired[i] and pairs.n_seeds[i] >= 2
        gain = base_i.mean() - full_i.mean()
        rows.append(
            SizeGap(
                size=size,
                pflops_days=float(np.exp(pairs.ln_compute[full][i])),
                loss_baseline=float(base_i.mean()),
                loss_block=float(block_i.mean()),
                loss_full=float(full_i.mean()),
                gap=float(block_i.mean() - full_i.mean()),
                gap_interval=mean_interval(block_i - full_i, level) if several else None,
                share_kept=float((base_i.mean() - block_i.mean()) / gain) if gain > 0 else None,
                n_seeds=pairs.n_seeds[i],
            )
        )
    gaps = np.array([row.gap for row in rows])
    pooled = mean_interval(gaps, level) if len(rows) >= 2 else None
    losses = pairs.loss(base), pairs.loss(block), pairs.loss(full)
    return Gap(
        full=full,
        block=block,
        baseline=base,
        by_size=tuple(rows),
        pooled=pooled,
        share=ratio_of_means(losses[0] - losses[1], losses[0] - losses[2], level, full),
        trend=_trend(pairs.ln_compute[full], gaps, level),
        separable=pooled is not None and not pooled.contains(0),
        seeds_needed=_seeds_needed(pairs, block, full, level),
        dropped_sizes=pairs.dropped,
        seeds_paired=all(pairs.seeds_paired),
        flops_convention=df.attrs.get("flops_convention"),
        level=level,
        notes=_notes(pairs.n_seeds, len(rows)),
    )


def _trend(ln_compute: np.ndarray, gaps: np.ndarray, level: float) -> Estimate | None:
    if len(gaps) < 3 or np.ptp(ln_compute) < 1e-6:
        return None
    law = line(ln_compute, gaps)
    decade = np.log(10)
    return t_interval(-law.alpha * decade, decade * np.sqrt(law.cov[1, 1]), law.dof, level)


def _seeds_needed(pairs: Pairs, block: str, full: str, level: float) -> int | None:
    """The fewest seeds a size whose mean over all sizes is told from 0, if it stays as it is.

    Noise is the scatter between paired seeds, or between sizes where there is one seed, which a
    change of the gap with size makes larger.
    """
    columns = zip(pairs.losses[block], pairs.losses[full], pairs.seeds_paired, strict=True)
    differences = [b - f for b, f, paired in columns if paired]
    if not differences:
        return None
    several = [d for d in differences if len(d) > 1]
    means = np.array([d.mean() for d in differences])
    if several:
        spread = np.sqrt(np.mean([d.var(ddof=1) for d in several]))
    elif len(means) > 1:
        spread = means.std(ddof=1)
    else:
        return None
    for n in range(1, MOST_SEEDS + 1):
        runs = n * len(means)
        if runs > 1 and t_quantile(level, runs - 1) * spread / np.sqrt(runs) < abs(means.mean()):
            return n
    return None


def _notes(n_seeds: tuple[int, ...], n_sizes: int) -> tuple[str, ...]:
    notes = []
    if min(n_seeds) < 2:
        notes.append(
            "With a single seed at a size no interval is possible for that size alone; the pooled "
            "one takes its noise from the scatter between sizes."
        )
    if n_sizes < 2:
        notes.append("With one size there is no pooled interval; run the variants at more sizes.")
    return tuple(notes)
