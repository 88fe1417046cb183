"""How much compute the baseline would need to match a variant, with a paired interval."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.cells import Pairs, pair, require_compute_range, require_loaded, require_sizes
from analysis.coefficients import multiplier_from_coefficients, rounding_box
from analysis.errors import Refusal
from analysis.fit import require_compute
from analysis.record import Record
from analysis.shift import (
    Shift,
    crossing,
    exponent_difference,
    separate_exponents_shift,
    shared_exponent_shift,
    shift_at_loss,
)
from analysis.stats import Estimate, Line, line
from analysis.table import baseline as baseline_of
from analysis.table import require_variant

__all__ = ["Multiplier", "SizeMultiplier", "multiplier", "multiplier_from_coefficients"]
__all__ += ["rounding_box"]

INTERVAL = (
    "paired by size: delta-method t interval of mean(ln L_base - ln L_variant) / alpha, so noise "
    "that both runs of a size share cancels"
)


@dataclass(frozen=True)
class SizeMultiplier:
    """exp((ln L_base - ln L_variant) / alpha_base) at one size: the slope converts the gap."""

    size: str
    pflops_days: float  # of the variant
    value: float
    n_seeds: int


@dataclass(frozen=True)
class Multiplier(Record):
    """m(C) = C_base(L_variant(C)) / C: above 1, the baseline needs more compute for that loss."""

    variant: str
    baseline: str
    at: float  # PFLOP/s-days of the variant at which `separate` is evaluated
    at_loss: float  # the variant's fitted loss there, nats
    shared: Estimate  # the headline: one exponent for both curves, hence constant in C
    separate: Estimate  # each curve with its own exponent, at `at`
    exponent_difference: Estimate  # alpha_variant - alpha_baseline
    alpha_shared: Estimate
    alpha_baseline: Estimate
    by_size: tuple[SizeMultiplier, ...]
    sizes: tuple[str, ...]
    dropped_sizes: tuple[str, ...]  # not run for both
    n_seeds: tuple[int, ...]  # [n_sizes] seeds that both have
    seeds_paired: bool  # False where some size has no seed in common and all were averaged
    separable: bool  # the interval of `shared`, or of `separate` where curves cross, excludes 1
    crosses_at: float | None  # PFLOP/s-days; where curves cross, `shared` means nothing
    extrapolates: bool
    extrapolation: str | None  # what is extrapolated, in words
    flops_convention: str | None
    level: float
    interval: str = INTERVAL


def multiplier(
    df: pd.DataFrame,
    variant: str,
    baseline: str | None = None,
    at: float | None = None,
    level: float = 0.95,
    *,
    at_loss: float | None = None,
) -> Multiplier:
    """The compute-equivalent multiplier of a variant: the horizontal shift at equal loss.

    Only sizes that both have are used, and at each the seeds that both have (see
    `analysis.cells.pair`). The headline `shared` assumes one exponent for both curves; its interval
    is the wider of the two in `analysis.shift.shared_exponent_shift`. `separate` lets the exponents
    differ and holds at `at` only; where `exponent_difference` excludes 0, believe that one.
    Multipliers count FLOPs as the table does, not wall-clock time.

    Args:
        df: from `analysis.load`.
        variant: the variant to judge.
        baseline: default "prenorm" or "baseline".
        at: compute in PFLOP/s-days, of the variant; default its largest.
        at_loss: nats instead: m = C_base / C_variant where both curves have this loss.
        level: of the intervals.

    Raises:
        Refusal: "missing-variant", "no-baseline", "same-variant", "too-few-sizes",
            "no-compute-range", "bad-compute", "bad-option", "no-usable-slope", "out-of-range",
            "no-overlap": no loss that both were seen at; "curves-cross": one is better at the
            smallest compute and the other at the largest, both shown, so that no single multiplier
            holds; with `at` or `at_loss` there is one.
    """
    require_loaded(df)
    variant = require_variant(df, variant)
    base = baseline_of(df, baseline)
    if variant == base:
        raise Refusal(
            "same-variant", f"'{variant}' is the baseline; name the variant to compare with it."
        )
    pairs = pair(df, [base, variant])
    require_sizes(len(pairs.sizes), f"The comparison of '{variant}' with '{base}'", pairs.sizes)
    x_b, x_v = pairs.ln_compute[base], pairs.ln_compute[variant]
    y_b, y_v = pairs.ln_loss(base), pairs.ln_loss(variant)
    require_compute_range(x_b, f"'{base}'")
    require_compute_range(x_v, f"'{variant}'")
    points = x_b, y_b, x_v, y_v
    law = line(x_v, y_v)
    require_point(at, at_loss)
    if at_loss is not None:
        ln_at = _compute_of(at_loss, law, variant)
        separate = shift_at_loss(*points, np.log(at_loss), level)
        asked, at = True, math.exp(ln_at)
    else:
        asked, at = at is not None, float(np.exp(x_v[-1]) if at is None else at)
        require_compute(at)
        separate = separate_exponents_shift(*points, np.log(at), level)
    _require_slope(separate, base)
    shared = shared_exponent_shift(*points, level)
    _require_slope(shared, f"{base} and {variant} together")
    for shift in (separate, shared):
        _require_in_range(shift, base, variant)
    _require_overlap(y_b, y_v, base, variant)
    crossed = crossing(*points, level)
    if crossed and not asked:
        raise _crossing_refusal(base, variant, *crossed)
    loss_there = float(np.exp(law.at(np.log(at))[0]))
    extrapolation = _extrapolation(base, variant, x_v, y_b, loss_there, at)
    headline = shared.ln_m.exp()
    return Multiplier(
        variant=variant,
        baseline=base,
        at=at,
        at_loss=loss_there,
        shared=headline,
        separate=separate.ln_m.exp(),
        exponent_difference=exponent_difference(x_b, y_b, x_v, y_v, level),
        alpha_shared=shared.alpha,
        alpha_baseline=separate.alpha,
        by_size=_by_size(pairs, base, variant, separate.alpha.value),
        sizes=pairs.sizes,
        dropped_sizes=pairs.dropped,
        n_seeds=pairs.n_seeds,
        seeds_paired=all(pairs.seeds_paired),
        separable=not (separate.ln_m.exp() if crossed else headline).contains(1),
        crosses_at=float(np.exp(crossed[0])) if crossed else None,
        extrapolates=extrapolation is not None,
        extrapolation=extrapolation,
        flops_convention=df.attrs.get("flops_convention"),
        level=level,
    )


def _require_slope(shift: Shift, what: str) -> None:
    alpha = shift.alpha
    if alpha.low <= 0:
        raise Refusal(
            "no-usable-slope",
            f"The loss of {what} does not fall with compute: alpha = {alpha.value:.3g} "
            f"[{alpha.low:.3g}, {alpha.high:.3g}], so the curve has no usable inverse and a gap in "
            "loss cannot be turned into compute. Use a wider range of sizes, more of them, or "
            "more seeds.",
        )


def _require_in_range(shift: Shift, base: str, variant: str) -> None:
    """A factor of e^100 in compute is a curve that is all but flat."""
    ln_m = shift.ln_m
    if not max(abs(ln_m.value), abs(ln_m.low), abs(ln_m.high)) < 100:
        raise Refusal(
            "out-of-range",
            f"'{variant}' and '{base}' differ by more than their slope can turn into compute "
            f"(ln m = {ln_m.value:.3g} [{ln_m.low:.3g}, {ln_m.high:.3g}]): the loss of '{base}' "
            "hardly falls in the range of the sizes. Compare losses instead (scaling gap).",
        )


def _by_size(pairs: Pairs, base: str, variant: str, alpha: float) -> tuple[SizeMultiplier, ...]:
    x_b, x_v = pairs.ln_compute[base], pairs.ln_compute[variant]
    d = pairs.ln_loss(base) - pairs.ln_loss(variant)
    values = np.exp(d / alpha + x_b - x_v).tolist()
    columns = zip(pairs.sizes, np.exp(x_v).tolist(), values, pairs.n_seeds, strict=True)
    return tuple(SizeMultiplier(*row) for row in columns)


def require_point(at: float | None, at_loss: float | None) -> None:
    """Refuses a compute and a loss at once, and what is neither.

    Raises:
      Refusal: "bad-compute", "bad-option".
    """
    if at is not None and at_loss is not None:
        raise Refusal("bad-option", "Give a compute or a loss to compare at, not both.")
    if at is not None:
        require_compute(at)
    if at_loss is not None and not (np.isfinite(at_loss) and at_loss > 0):
        raise Refusal("bad-option", f"The loss to compare at is {at_loss}; give nats above 0.")


def _compute_of(loss: float, law: Line, variant: str) -> float:
    """ln of the compute at which the variant has this loss."""
    if law.alpha <= 0:
        raise Refusal(
            "no-usable-slope",
            f"The loss of '{variant}' does not fall with compute (alpha {law.alpha:.3g}), so that "
            f"no compute is known to bring it to {loss:.4g} nats.",
        )
    ln_C = float((law.intercept - np.log(loss)) / law.alpha)
    if not abs(ln_C) < 100:
        raise Refusal(
            "out-of-range",
            f"'{variant}' would have a loss of {loss:.4g} nats at e^{ln_C:.0f} PFLOP/s-days, far "
            "from all that was run; compare at a loss near those of the table.",
        )
    return ln_C


def _require_overlap(y_b: np.ndarray, y_v: np.ndarray, base: str, variant: str) -> None:
    """A loss that only one of them was seen at says nothing of the other's compute there."""
    if y_v.max() < y_b.min() or y_b.max() < y_v.min():
        (low, high), (b_low, b_high) = (np.exp([y.min(), y.max()]) for y in (y_v, y_b))
        raise Refusal(
            "no-overlap",
            f"The losses of '{variant}' ({low:.4g} to {high:.4g}) and '{base}' ({b_low:.4g} to "
            f"{b_high:.4g}) do not overlap, so that no compute of one is known at a loss of the "
            "other. Widen the range of sizes until they do, or compare losses (scaling gap).",
        )


def _crossing_refusal(base: str, variant: str, ln_C: float, first: Shift, last: Shift) -> Refusal:
    low, high = (shift.ln_m.exp() for shift in (first, last))
    return Refusal(
        "curves-cross",
        f"'{variant}' and '{base}' cross at {np.exp(ln_C):.3g} PFLOP/s-days, inside the range: the "
        f"multiplier goes from {low.value:.3g}x [{low.low:.3g}, {low.high:.3g}] at the smallest "
        f"compute to {high.value:.3g}x [{high.low:.3g}, {high.high:.3g}] at the largest, so there "
        "is no single one. Ask for that at one compute or loss (--at, --at-loss).",
    )


def _extrapolation(base, variant, x_v, y_b, loss, at) -> str | None:
    low, high = np.exp(x_v[[0, -1]])
    best, worst = np.exp(y_b.min()), np.exp(y_b.max())
    tolerance = 1e-9
    if not low * (1 - tolerance) <= at <= high * (1 + tolerance):
        return (
            f"{at:.3g} PFLOP/s-days is outside the compute that '{variant}' was run at "
            f"({low:.3g} to {high:.3g})"
        )
    if not best * (1 - tolerance) <= loss <= worst * (1 + tolerance):
        return (
            f"at {at:.3g} PFLOP/s-days '{variant}' has a fitted loss of {loss:.4g}, outside what "
            f"'{base}' was observed at ({best:.4g} to {worst:.4g})"
        )
    return None
