"""Results as rows of text and as sentences; no verdict appears without its interval."""

from collections.abc import Iterable

import pandas as pd

from analysis.differences import Difference
from analysis.errors import listed
from analysis.gap import Gap
from analysis.stats import Estimate


def number(estimate: Estimate, digits: int = 2, unit: str = "") -> str:
    """ "1.24x [1.19, 1.29]", at `digits` decimals; more where the interval would look empty."""
    while digits < 6 and f"{estimate.low:.{digits}f}" == f"{estimate.high:.{digits}f}":
        digits += 1
    small = unit == "x" and 0 < estimate.low < 1e-3
    value, low, high = (
        f"{v:.3g}" if small else _fixed(v, digits)
        for v in (estimate.value, estimate.low, estimate.high)
    )
    return f"{value}{unit} [{low}, {high}]"


def _fixed(v: float, digits: int) -> str:
    return f"{v:.{digits}f}" if abs(v) < 1e4 else f"{v:.3g}"


def seeds_in_words(counts: Iterable[int]) -> str:
    low, high = min(counts), max(counts)
    if low == high:
        return f"{low} seed{'' if low == 1 else 's'}"
    return f"{low} to {high} seeds"


def convention(name: str | None) -> str:
    return f"FLOP convention: {name or 'not stated in the table'}."


def exclusions(df: pd.DataFrame) -> list[str]:
    excluded = df.attrs.get("excluded") or {}
    if not excluded:
        return []
    counts = ", ".join(f"{n} {status}" for status, n in excluded.items())
    return [f"Left out, status not 'done': {counts}."]


def difference_rows(rows: list[Difference], baseline: str) -> list[dict[str, str]]:
    """One row a variant and size: mean loss, and the paired difference to the baseline's."""
    return [
        {
            "size": row.size,
            "variant": row.variant,
            "loss": f"{row.loss:.4f}",
            "seeds": str(row.n_seeds),
            f"minus {baseline} (nats)": "" if row.difference is None
            else _signed(row.difference, row.interval),
            "paired": "" if row.difference is None else str(row.n_paired),
        }
        for row in rows
    ]  # fmt: skip


def _signed(value: float, interval: Estimate | None) -> str:
    """A difference in nats, with its interval where there is one."""
    return number(interval, 4) if interval else f"{value:+.4f}"


def difference_notes(
    rows: list[Difference], df: pd.DataFrame, baseline: str, level: float
) -> list[str]:
    """What the brackets are, and how many of them one should expect to miss."""
    notes = ["Loss at equal size, not at equal compute."]
    compared = [row for row in rows if row.difference is not None]
    told = sum(row.interval is not None for row in rows)
    if baseline not in set(df["variant"]):
        notes.append(f"No run of the baseline '{baseline}' is done, so there are no differences.")
    if told:
        notes.append(
            f"Brackets: {level:.0%} t intervals over the paired seeds (paired - 1 degrees of "
            f"freedom), each for itself: of {told}, about {(1 - level) * told:.2g} miss the truth."
        )
    if any(row.n_paired == 1 for row in compared):
        notes.append("One paired seed gives no interval; run several: seeds: [0, 1, 2].")
    if any(row.n_paired == 0 for row in compared):
        notes.append("Paired 0: the two share no seed, and all seeds of each were averaged.")
    return notes + exclusions(df)


def gap_rows(g: Gap) -> list[dict[str, str]]:
    """One row a size: losses, gap, share kept."""
    return [
        {
            "size": row.size,
            "PFsd": f"{row.pflops_days:.3g}",
            f"L {g.baseline}": f"{row.loss_baseline:.4f}",
            f"L {g.block}": f"{row.loss_block:.4f}",
            f"L {g.full}": f"{row.loss_full:.4f}",
            "gap (nats)": _signed(row.gap, row.gap_interval),
            "share kept": "-" if row.share_kept is None else f"{row.share_kept:.0%}",
            "seeds": str(row.n_seeds),
        }
        for row in g.by_size
    ]


def gap_verdict(g: Gap) -> list[str]:
    """Sentences on the pooled gap and on the share of Full's gain that Block keeps."""
    if g.pooled is None:
        gap = f"{g.block} - {g.full}: one size only, so there is no pooled gap."
    elif not g.separable:
        gap = (
            f"{g.block} and {g.full}: not separated at this budget: gap "
            f"{number(g.pooled, 4, ' nats')}."
        )
    else:
        better = g.full if g.pooled.value > 0 else g.block
        gap = f"{better} is better: mean gap {g.block} - {g.full} = {number(g.pooled, 4, ' nats')}."
    share = g.share.estimate
    if share is None:
        kept = f"The share of {g.full}'s gain that {g.block} keeps is undefined: "
        return [gap, kept + f"{g.share.undefined_because}."]
    percent = Estimate(*(100 * v for v in (share.value, share.low, share.high)), share.level)
    return [
        gap,
        f"{g.block} keeps {number(percent, 0, '%')} of {g.full}'s gain over {g.baseline}.",
    ]


def gap_notes(g: Gap, df: pd.DataFrame) -> list[str]:
    """Convention, interval, and what was left out."""
    seeds = [row.n_seeds for row in g.by_size]
    notes = [
        f"Loss at equal size, not at equal compute. {convention(g.flops_convention)}",
        f"{len(g.by_size)} sizes, {seeds_in_words(seeds)} a size.",
        f"Brackets: {g.level:.0%}; {g.interval}.",
        *g.notes,
    ]
    if g.trend is not None:
        told = "changes" if not g.trend.contains(0) else "is not seen to change"
        trend = number(g.trend, 4, " nats")
        notes.append(f"The gap {told} with compute: {trend} per factor of ten.")
    if not g.separable and g.pooled is not None:
        needed = g.seeds_needed_note or f"about {g.seeds_needed}, in half of all studies"
        notes.append(f"Seeds a size to tell {g.pooled.value:+.4f} nats from 0: {needed}.")
    if g.dropped_sizes:
        notes.append(
            f"{len(g.dropped_sizes)} sizes not run for all three were dropped "
            f"({listed(g.dropped_sizes)})."
        )
    if not g.seeds_paired:
        notes.append("Some sizes share no seed; there all seeds were averaged.")
    return notes + exclusions(df)
