"""`scaling fit` in words: rows of tables, and sentences; no verdict without its interval."""

import re
from collections.abc import Iterable

import pandas as pd

from analysis.coefficients import Printed
from analysis.errors import Refusal, listed
from analysis.fit import Fits
from analysis.forms import Form
from analysis.holdout import Holdout
from analysis.multiplier import Multiplier
from analysis.practice import Practice
from analysis.render import convention, exclusions, number, seeds_in_words
from analysis.report import Report
from analysis.robustness import Robustness
from analysis.stats import Estimate

_PRACTICES = {
    "every variant": "each variant's from a sweep of its own",
    "one variant": "from sweeps of {owner} alone, which favours it",
    "none": "not from a sweep",
    "mixed": "some from the variant's own sweep, some from the baseline's or none (fits.json)",
    "not stated": "how they were chosen is not stated",
}


def law_rows(fits: Fits) -> list[dict[str, str]]:
    """One row a variant: coefficients and the loss at the reference compute."""
    return [
        {
            "variant": law.variant + (" (baseline)" if law.variant == fits.baseline else ""),
            "A": number(law.A, 4),
            "alpha": number(law.alpha, 4),
            f"loss at {fits.at:.3g} PFsd": number(law.loss_at, 4),
        }
        for law in fits.laws.values()
    ]


def law_notes(fits: Fits, df: pd.DataFrame, practice: Practice) -> list[str]:
    """Form, convention, data, learning rates and interval in one paragraph."""
    seeds = df.groupby(["variant", "size"])["seed"].nunique()
    shared = f" One for all variants: {number(fits.shared.alpha, 4)}." if fits.shared else ""
    sentences = [
        "L in nats, C in PFLOP/s-days (PFsd, 8.64e19 FLOP).",
        convention(fits.flops_convention),
        f"{df['size'].nunique()} sizes, {seeds_in_words(seeds)} a size, {len(df)} runs.",
        f"Learning rates: {_PRACTICES[practice.name].format(owner=practice.owner)}.",
        f"Brackets: {fits.level:.0%} t intervals over size means; lack of fit is in them.{shared}",
        *exclusions(df),
    ]
    return [" ".join(sentences)]


def multiplier_rows(report: Report) -> list[dict[str, str]]:
    """One row a variant: one exponent, the same jointly over variants, own exponents, by size."""
    several = len(report.multipliers) > 1
    return [
        {
            "variant": m.variant,
            "one exponent": "curves cross" if m.crosses_at else number(m.shared, unit="x"),
            **({"all at once": _estimate(report.together.get(m.variant))} if several else {}),
            "own exponents": number(m.separate, unit="x"),
            "by size": " ".join(f"{s.value:.2f}" for s in m.by_size),
        }
        for m in report.multipliers
    ]


def multiplier_verdict(m: Multiplier) -> str:
    """One sentence: who is better and by how much compute, or that the data cannot tell."""
    there = f"at {m.at:.3g} PFsd it is {number(m.separate, unit='x')}"
    if m.crosses_at:
        return (
            f"{m.variant} and {m.baseline} cross at {m.crosses_at:.3g} PFsd, so that no single "
            f"multiplier holds: {there}."
        )
    value = number(m.shared, unit="x")
    if not m.separable:
        verdict = f"{m.variant} and {m.baseline}: not separated at this budget: {value}."
    elif m.shared.value > 1:
        verdict = f"{m.variant} is better: {m.baseline} needs {value} the compute for its loss."
    else:
        verdict = f"{m.variant} is worse: {m.baseline} needs {value} the compute for its loss."
    if not m.exponent_difference.contains(0):
        verdict += (
            f" The exponents differ ({number(m.exponent_difference, 4)}), so no single "
            f"multiplier holds: {there}."
        )
    return verdict


def refusal_verdict(variant: str, refusal: Refusal) -> str:
    """Why there is no multiplier."""
    return f"{variant}: no multiplier ({refusal.code}). {refusal}"


def printed_sentence(p: Printed) -> str:
    """What a paper's own coefficients give."""
    return (
        f"{p.variant} as printed ({p.source}): {p.value:.2f}x at {p.at:g} PFsd; rounding alone "
        f"spans {p.low:.2f} to {p.high:.2f}."
    )


def _where(multipliers: list[Multiplier], computes: list[str]) -> str:
    at = f"at {' to '.join(computes[:: max(len(computes) - 1, 1)])} PFsd"
    losses = {f"{m.at_loss:.4g}" for m in multipliers}
    if len(multipliers) > 1 and len(losses) == 1:
        return f"at a loss of {losses.pop()} nats, which the variants have {at}"
    return at


def multiplier_notes(multipliers: list[Multiplier]) -> list[str]:
    """The interval, and what the comparisons left out or extrapolated."""
    if not multipliers:
        return []
    computes = sorted({f"{m.at:.3g}" for m in multipliers}, key=float)
    sentences = [
        "One exponent for both curves, or one each; paired by size, so that what both runs share "
        "cancels.",
        *(
            ["All at once: the intervals hold jointly (Bonferroni)."]
            if len(multipliers) > 1
            else []
        ),
        f"Own exponents: {_where(multipliers, computes)}.",
        "By size: each size's gap, converted at the baseline's slope.",
        "FLOPs only, not wall-clock.",
    ]
    beyond = [m.variant for m in multipliers if m.extrapolates]
    if beyond:
        (first,) = [m.extrapolation for m in multipliers if m.variant == beyond[0]]
        others = f"; likewise {', '.join(beyond[1:])}" if beyond[1:] else ""
        sentences.append(f"Extrapolates: {first}{others}.")
    for m in multipliers:
        if m.dropped_sizes:
            sentences.append(
                f"{m.variant}: {len(m.dropped_sizes)} sizes not run for both were dropped "
                f"({listed(m.dropped_sizes)})."
            )
        if not m.seeds_paired:
            sentences.append(
                f"{m.variant}: some sizes share no seed with {m.baseline}; all were averaged."
            )
    return [" ".join(sentences)]


def robustness_rows(found: list[Robustness]) -> list[dict[str, str]]:
    """One row a variant: without a size, by Huber, under floors, by the clock."""
    clock = any(r.wall_clock for r in found)
    return [
        {
            "variant": r.variant,
            "less a size": _range(r.left_out.values()),
            "Huber": _estimate(r.huber),
            **{
                "E shared" if f.floor == "shared" else f"E {f.floor}": _estimate(f.multiplier)
                for f in r.floors
                if f.floor != "0"  # own exponents, of the table above
            },
            **({"by the clock": _estimate(r.wall_clock)} if clock else {}),
        }
        for r in found
    ]


def _estimate(multiplier: Estimate | None) -> str:
    return number(multiplier, unit="x") if multiplier else "-"


def _range(values: Iterable[float | None]) -> str:
    values = list(values)
    known = [v for v in values if v is not None]
    if not known:
        return "-"
    return f"{min(known):.2f} to {max(known):.2f}" + (" or none" if None in values else "")


def robustness_notes(found: list[Robustness]) -> list[str]:
    """What the columns are, and why some are empty."""
    if not found:
        return []
    sentences = [
        "Less a size: each left out in turn. Huber: one exponent, robust to a bad run. E: a floor "
        "of both losses in nats, own exponents: 60% and 80% of the least loss; one that is unknown "
        "and shared; one each.",
    ]
    if any(r.wall_clock for r in found):
        sentences.append("By the clock: in seconds on the hardware of the runs.")
    floors = [f"{r.variant} {number(r.floor, 2)}" for r in found if r.floor]
    if floors:
        undecided = (
            " Zero is not excluded." if any(r.floor.low == 0 for r in found if r.floor) else ""
        )
        sentences.append(f"A floor that both share: {', '.join(floors)} nats.{undecided}")
    refused: dict[str, dict[str, list[str]]] = {}
    for r in found:
        for f in r.floors:
            if f.refused:
                reason = re.sub(r" \([^()]* nats[^()]*\)", "", f.refused)  # one cause, other digits
                refused.setdefault(reason, {}).setdefault(f"E {f.floor}", []).append(r.variant)
    for reason, columns in refused.items():
        where = [
            column if len(variants) == len(found) else f"{column} ({', '.join(variants)})"
            for column, variants in columns.items()
        ]
        sentences.append(f"{', '.join(where)}: {reason}")
    return [" ".join(sentences)]


def form_rows(found: list[Form]) -> list[dict[str, str]]:
    """One row a law of a variant."""
    return [
        {
            "variant": f.variant,
            "law": f.form,
            "E": _parameter(f, "E", 3),
            "alpha": _parameter(f, "alpha", 4),
            "beta": _parameter(f, "beta", 4),
            "rmse": _plain(f.rmse, ".5f"),
            "AICc": _plain(f.aicc, ".1f"),
            "largest": _plain(f.largest, "+.2%"),
        }
        for f in found
        if f.refused is None
    ]


def _parameter(f: Form, name: str, digits: int) -> str:
    interval = (f.intervals or {}).get(name)
    return number(interval, digits) if interval else _plain(getattr(f, name), f".{digits}f")


def _plain(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def form_notes(found: list[Form]) -> list[str]:
    """What the columns are, and which laws there are not."""
    if not found:
        return []
    notes = [
        "Without a word: log least squares. Huber's function (delta 1e-3) and absolute deviations "
        "weigh a bad point less. rmse: of ln L. AICc: of log least squares, lower is better, "
        "within a variant; empty where the points are too few. Largest: error on the largest size, "
        "predicted from the others."
    ]
    refused: dict[str, list[str]] = {}
    for f in found:
        if f.refused:
            refused.setdefault(f"No {f.form}: {f.refused}", []).append(f.variant)
    whole = len({f.variant for f in found})
    return notes + [
        reason if len(variants) in (1, whole) else f"{reason} ({', '.join(variants)})"
        for reason, variants in refused.items()
    ]


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
