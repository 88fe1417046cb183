"""What Block gives up against Full, in loss at equal size, and the share of the gain it keeps."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.cells import Pairs, pair, require_loaded
from analysis.errors import Refusal
from analysis.fieller import Ratio, ratio_of_means
from analysis.record import Record
from analysis.stats import Estimate, line, mean_interval, t_interval, t_quantile
from analysis.table import baseline as baseline_of
from analysis.table import require_variant


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
    share_kept: float | None  # (L_base - L_block) / (L_base - L_full); None if that may be 0
    n_seeds: int


@dataclass(frozen=True)
class Gap(Record):
    """The gap between Full and Block at equal size (not at equal compute)."""

    full: str
    block: str
    baseline: str
    by_size: tuple[SizeGap, ...]
    pooled: Estimate | None  # mean gap over sizes, nats; None with one size
    share: Ratio  # of the mean gains over sizes, Fieller interval
    trend: Estimate | None  # of the gap, nats per factor of 10 in compute; None below three sizes
    separable: bool  # the pooled interval excludes 0
    seeds_needed: int | None  # a size, for half of all studies to tell such a gap from 0
    seeds_needed_note: str | None  # why there is no such number
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
    losses = pairs.loss(base), pairs.loss(block), pairs.loss(full)
    share = ratio_of_means(losses[0] - losses[1], losses[0] - losses[2], level, full)
    rows = []
    for i, size in enumerate(pairs.sizes):
        base_i, block_i, full_i = (pairs.losses[v][i] for v in (base, block, full))
        several = pairs.seeds_paired[i] and pairs.n_seeds[i] >= 2
        gain = base_i.mean() - full_i.mean()
        # With one seed, by all sizes together.
        told = mean_interval(base_i - full_i, level).low > 0 if several else share.estimate
        rows.append(
            SizeGap(
                size=size,
                pflops_days=float(np.exp(pairs.ln_compute[full][i])),
                loss_baseline=float(base_i.mean()),
                loss_block=float(block_i.mean()),
                loss_full=float(full_i.mean()),
                gap=float(block_i.mean() - full_i.mean()),
                gap_interval=mean_interval(block_i - full_i, level) if several else None,
                share_kept=float((base_i.mean() - block_i.mean()) / gain)
                if told and gain > 0
                else None,
                n_seeds=pairs.n_seeds[i],
            )
        )
    gaps = np.array([row.gap for row in rows])
    pooled = mean_interval(gaps, level) if len(rows) >= 2 else None
    needed, why = _seeds_needed(pairs, block, full, level)
    return Gap(
        full=full,
        block=block,
        baseline=base,
        by_size=tuple(rows),
        pooled=pooled,
        share=share,
        trend=_trend(pairs.ln_compute[full], gaps, level),
        separable=pooled is not None and not pooled.contains(0),
        seeds_needed=needed,
        seeds_needed_note=why,
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


def _seeds_needed(
    pairs: Pairs, block: str, full: str, level: float
) -> tuple[int | None, str | None]:
    """The fewest seeds a size at which the pooled half-width is the gap, or why there are none.

    The gap's variance has two parts: of paired seeds, which seeds average out, and of its change
    from size to size, which only more sizes do.
    """
    columns = zip(pairs.losses[block], pairs.losses[full], pairs.seeds_paired, strict=True)
    differences = [b - f for b, f, paired in columns if paired]
    several = [d for d in differences if len(d) > 1]
    n_sizes = len(differences)
    if n_sizes < 2 or not several:
        return None, "unknown: two paired seeds a size, at two sizes or more, would tell the noise"
    means = np.array([d.mean() for d in differences])
    of_seeds = float(np.mean([d.var(ddof=1) for d in several]))
    now = float(np.mean([len(d) for d in differences]))
    of_sizes = max(float(means.var(ddof=1)) - of_seeds / now, 0.0)
    allowed = (abs(float(means.mean())) / t_quantile(level, n_sizes - 1)) ** 2 * n_sizes
    if allowed <= of_sizes:
        return None, "none suffice: the gap changes too much from size to size; add sizes"
    needed = int(np.ceil(of_seeds / (allowed - of_sizes)))
    return max(needed, 1), None


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
