"""The verdict in three sentences: who wins, by what law, and what it rests on."""

import pandas as pd

from analysis.multiplier import Multiplier
from analysis.render import number, seeds_in_words
from analysis.report import Report
from analysis.stats import Estimate

MOST_NAMED = 4  # variants in one sentence; the table has all


def verdict(report: Report | None, df: pd.DataFrame | None, why: str = "") -> list[str]:
    """Three sentences, or fewer where there is less to say; no number without its interval.

    Args:
      report: of the table, None where it was refused.
      df: the table, None where there is none.
      why: the refusal in words.
    """
    if df is None:
        return [f"Nothing can be said yet: {why}"]
    if report is None:
        return [f"No law was fitted: {why}", _basis(None, df)]
    return [_multipliers(report), _laws(report), _basis(report, df)]


def _multipliers(report: Report) -> str:
    base = report.fits.baseline
    if base is None:
        return "No variant is known to be the baseline, so there are no multipliers."
    if not report.multipliers:
        reasons = [f"{v} ({r.code})" for v, r in report.refusals.items()]
        if not reasons:
            return f"Only {base} was fitted, so there is nothing to compare it with."
        return f"No variant could be compared with {base} in compute: {_some(reasons)}."
    groups: dict[str, list[str]] = {"better": [], "worse": [], "same": [], "cross": []}
    for m in sorted(report.multipliers, key=lambda m: -m.shared.value):
        kind, value = _judged(m, report)
        groups[kind].append(f"{m.variant} ({value})")
    words = {
        "better": f"for the same loss {base} needs more compute than ",
        "worse": f"for the same loss {base} needs less compute than ",
        "same": f"not separated from {base} at this budget: ",
        "cross": f"the curve of {base} is crossed, so that no single multiplier holds, by ",
    }
    text = "; ".join(words[kind] + _some(names) for kind, names in groups.items() if names)
    return f"{text[0].upper()}{text[1:]}."


def _judged(m: Multiplier, report: Report) -> tuple[str, str]:
    """Of several variants, intervals that hold jointly decide: the best of many is flattered."""
    if m.crosses_at is not None:
        return "cross", f"{number(m.separate, unit='x')} at {m.at:.3g} PFsd"
    value = report.together[m.variant] if len(report.multipliers) > 1 else m.shared
    kind = "same" if value.contains(1) else "better" if value.value > 1 else "worse"
    told = number(m.shared, unit="x")
    return kind, told if value is m.shared else f"{told}, jointly {_interval(value)}"


def _interval(value: Estimate) -> str:
    return number(value).partition(" ")[2]


def _laws(report: Report) -> str:
    fits = report.fits
    if fits.shared:
        law = f"with one exponent for all variants, {number(fits.shared.alpha, 4)}"
    else:
        laws = [f"{number(law.alpha, 4)} ({law.variant})" for law in fits.laws.values()]
        law = f"with exponent {_some(laws)}"
    differ = [
        f"{m.variant} by {number(m.exponent_difference, 4)}"
        for m in report.multipliers
        if not m.exponent_difference.contains(0)
    ]
    but = f"; exponents differ from that of {fits.baseline}: {_some(differ)}" if differ else ""
    return f"Loss falls as a power of compute {law}{but}."


def _basis(report: Report | None, df: pd.DataFrame) -> str:
    seeds = df.groupby(["variant", "size"])["seed"].nunique()
    n_sizes, n_runs = df["size"].nunique(), len(df)
    sizes, runs = f"size{'s' * (n_sizes != 1)}", f"run{'s' * (n_runs != 1)}"
    low, high = df["pflops_days"].min(), df["pflops_days"].max()
    reach = f"{low:.3g} to {high:.3g} PFsd" if high > low else f"{low:.3g} PFsd"
    text = f"This rests on {n_runs} {runs} at {n_sizes} {sizes} ({reach}), "
    text += f"{seeds_in_words(seeds)} each"
    beyond = [m.variant for m in report.multipliers if m.extrapolates] if report else []
    if beyond:
        text += f"; beyond the losses of {report.fits.baseline} it extrapolates for {_some(beyond)}"
    several = report is not None and len(report.multipliers) > 1
    if report is None:
        return f"{text}."
    jointly = ", jointly those that hold for all variants at once" if several else ""
    return f"{text}; brackets are {report.fits.level:.0%} intervals{jointly}."


def _some(names: list[str]) -> str:
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[:-1] else names)
