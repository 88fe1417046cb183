"""Results as rows of text and as sentences; no verdict appears without its interval."""

from collections.abc import Iterable

import pandas as pd

from analysis.coefficients import Printed
from analysis.differences import Difference
from analysis.errors import Refusal, listed
from analysis.fit import Fits
from analysis.gap import Gap
from analysis.holdout import Holdout
from analysis.multiplier import Multiplier
from analysis.practice import practice
from analysis.robustness import Robustness
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


def fit_rows(fits: Fits) -> list[dict[str, str]]:
    """One row a variant: coefficients and the loss at the reference compute."""
    return [
        {
            "variant": law.variant + (" (baseline)" if law.variant == fits.baseline else ""),
            "A": number(law.A, 4),
            "alpha": number(law.alpha, 4),
            f"loss at {fits.at:.3g} PFsd": number(law.loss_at, 4),
            "R2": "-" if law.r2 is None else f"{law.r2:.4f}",
            "sizes": str(law.n_sizes),
        }
        for law in fits.laws.values()
    ]


def fit_notes(fits: Fits, df: pd.DataFrame) -> list[str]:
    """What the table of fits is made of: form, convention, data, interval."""
    seeds = df.groupby(["variant", "size"])["seed"].nunique()
    notes = [
        "L = A * C^-alpha, C in PFLOP/s-days (PFsd, 8.64e19 FLOP), L in nats.",
        convention(fits.flops_convention),
        f"{df['size'].nunique()} sizes, {_seeds(seeds)} a size, {len(df)} runs.",
        f"Brackets: {fits.level:.0%} {fits.interval}.",
    ]
    if fits.shared:
        notes.append(f"One exponent for all variants: alpha = {number(fits.shared.alpha, 4)}.")
    notes.append(f"Learning rates: {_PRACTICES[practice(df, fits.baseline).name]}.")
    return notes + exclusions(df)


_PRACTICES = {
    "every variant": "each variant's from a sweep of its own",
    "baseline alone": "from sweeps of the baseline alone, which favours it",
    "none": "not from a sweep",
    "mixed": "some from the variant's own sweep, some from the baseline's or none (fits.json)",
    "not stated": "how they were chosen is not stated in the table",
}


def _seeds(counts: Iterable[int]) -> str:
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


def multiplier_rows(multipliers: list[Multiplier]) -> list[dict[str, str]]:
    """One row a variant: shared-exponent headline, separate exponents, per-size values."""
    return [
        {
            "variant": m.variant,
            "shared exponent": number(m.shared, unit="x"),
            "own exponents": number(m.separate, unit="x"),
            "at PFsd": f"{m.at:.3g}",
            "by size": " ".join(f"{s.value:.2f}" for s in m.by_size),
        }
        for m in multipliers
    ]


def multiplier_verdict(m: Multiplier) -> str:
    """One sentence: who is better and by how much compute, or that the data cannot tell."""
    value = number(m.shared, unit="x")
    if not m.separable:
        verdict = f"{m.variant} vs {m.baseline}: not separated at this budget: {value}."
    elif m.shared.value > 1:
        verdict = (
            f"{m.variant} is better than {m.baseline}, which would need {value} the compute "
            "to reach the same loss."
        )
    else:
        verdict = (
            f"{m.variant} is worse than {m.baseline}, which reaches the same loss with "
            f"{value} the compute."
        )
    if not m.exponent_difference.contains(0):
        verdict += (
            f" The exponents differ ({number(m.exponent_difference, 4)}), so no single "
            f"multiplier holds: at {m.at:.3g} PFsd it is {number(m.separate, unit='x')}."
        )
    return verdict


def multiplier_notes(multipliers: list[Multiplier]) -> list[str]:
    """The interval, and what each comparison left out or extrapolated."""
    if not multipliers:
        return []
    first = multipliers[0]
    notes = [f"Brackets: {first.level:.0%}, {first.interval}. FLOPs only, not wall-clock."]
    if len(multipliers) > 1:
        notes.append(
            f"{len(multipliers)} comparisons, each at {first.level:.0%}: the best of several is "
            "flattered."
        )
    for m in multipliers:
        if m.dropped_sizes:
            notes.append(
                f"{m.variant}: {len(m.dropped_sizes)} sizes not run for both were dropped "
                f"({listed(m.dropped_sizes)})."
            )
        if not m.seeds_paired:
            notes.append(
                f"{m.variant}: some sizes share no seed with {m.baseline}; all seeds were averaged."
            )
        if m.extrapolation:
            notes.append(f"Extrapolates: {m.extrapolation}.")
    return notes


def robustness_rows(found: list[Robustness]) -> list[dict[str, str]]:
    """One row a variant: without a size, by Huber, at the largest size, by the clock."""
    return [
        {
            "variant": r.variant,
            "without a size": _range(r.left_out.values()),
            "Huber": _value(r.huber),
            "largest alone": f"{r.single_scale:.2f}x",
            **({"by the clock": _clock(r)} if any(x.wall_clock for x in found) else {}),
        }
        for r in found
    ]


def floor_rows(found: list[Robustness]) -> list[dict[str, str]]:
    """One row a variant: the multiplier under each floor."""
    return [
        {"variant": r.variant, **{f"E = {f.floor}": _value(f.multiplier) for f in r.floors}}
        for r in found
    ]


def _clock(r: Robustness) -> str:
    return number(r.wall_clock, unit="x") if r.wall_clock else "-"


def _value(multiplier: float | None) -> str:
    return "-" if multiplier is None else f"{multiplier:.2f}x"


def _range(values: Iterable[float]) -> str:
    values = list(values)
    return f"{min(values):.2f} to {max(values):.2f}" if values else "-"


def robustness_notes(found: list[Robustness]) -> list[str]:
    """What the columns are, and why some are empty."""
    if not found:
        return []
    notes = [
        "E: floors of both curves, in nats, each curve with its own exponent, at "
        f"{found[0].at:.3g} PFsd. Huber: one exponent, delta 1e-3 in ln L. Largest alone: the "
        "largest size's gap at the baseline's slope, as of a study with one size."
    ]
    if any(r.wall_clock for r in found):
        notes.append(
            "By the clock: the multiplier times the variant's training FLOPs a second over the "
            "baseline's, on the hardware that the runs had."
        )
    for r in found:
        if r.floor:
            undecided = " Zero is not excluded." if r.floor.low == 0 else ""
            notes.append(
                f"{r.variant}: a floor that both curves share is {number(r.floor, 2, ' nats')} "
                f"(profile likelihood).{undecided}"
            )
        refused = {f.floor: f.refused for f in r.floors if f.refused}
        notes += [f"{r.variant}, E = {floor}: {reason}" for floor, reason in refused.items()]
    return notes


def printed_sentence(p: Printed) -> str:
    """What a paper's own coefficients give."""
    return (
        f"{p.variant}: the printed coefficients ({p.source}) give {p.value:.2f}x at {p.at:g} PFsd; "
        f"their rounding alone spans {p.low:.2f} to {p.high:.2f}."
    )


def holdout_rows(h: Holdout) -> list[dict[str, str]]:
    """One row a held-out point: measured loss, and each predictor's error."""
    return [
        {
            "variant": p.variant,
            "size": p.size,
            "PFsd": f"{p.pflops_days:.3g}",
            "loss": f"{p.measured:.4f}",
            **{
                name: f"{p.errors[name]:+.2%}" if name in p.errors else "-" for name in h.predictors
            },
        }
        for p in h.predictions
    ]


def holdout_notes(h: Holdout) -> list[str]:
    """Mean errors, best first, and the laws that there were not."""
    ranked = sorted(h.mean_error.items(), key=lambda item: item[1])
    notes = [
        f"Laws fitted without the {h.n_held_out} largest sizes ({h.n_fitted} are left). Mean "
        f"absolute error over the {h.n_compared} points that all predict: "
        + ", ".join(f"{name} {error:.2%}" for name, error in ranked)
        + "."
    ]
    return notes + [f"{name}: {reason}" for name, reason in h.refusals.items()]


def difference_rows(rows: list[Difference], baseline: str) -> list[dict[str, str]]:
    """One row a variant and size: mean loss, and the paired difference to the baseline's."""
    return [
        {
            "size": row.size,
            "variant": row.variant,
            "loss": f"{row.loss:.4f}",
            "seeds": str(row.n_seeds),
            f"less {baseline} (nats)": "" if row.difference is None
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


def refusal_verdict(variant: str, refusal: Refusal) -> str:
    return f"{variant}: no multiplier ({refusal.code}). {refusal}"


def gap_rows(g: Gap) -> list[dict[str, str]]:
    """One row a size: losses, gap, share kept."""
    return [
        {
            "size": row.size,
            "PFsd": f"{row.pflops_days:.3g}",
            g.baseline: f"{row.loss_baseline:.4f}",
            g.block: f"{row.loss_block:.4f}",
            g.full: f"{row.loss_full:.4f}",
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
        f"{len(g.by_size)} sizes, {_seeds(seeds)} a size.",
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
