"""The horizontal shift between two power laws, and its paired interval, on plain arrays.

With ln L_b = a_b - alpha_b ln C for the baseline and likewise for the variant, the multiplier is
m(C) = C_base(L_var(C)) / C, so ln m = (a_b - a_v + alpha_v ln C) / alpha_b - ln C. Arguments x_b,
y_b, x_v, y_v: [n_sizes] of ln compute and ln loss, the same size at the same position.
"""

from dataclasses import dataclass

import numpy as np

from analysis.errors import Refusal
from analysis.stats import Estimate, Line, line, t_interval, t_quantile


@dataclass(frozen=True)
class Shift:
    """ln m with its interval, and the exponent it was converted with."""

    ln_m: Estimate
    alpha: Estimate


def shared_exponent_shift(x_b, y_b, x_v, y_v, level: float) -> Shift:
    """ln m under one exponent for both: mean(d) / alpha + mean(x_b - x_v), d = y_b - y_v.

    Two things are uncertain: the mean of the paired differences d (n - 1 degrees of freedom) and
    alpha. Two delta-method intervals are formed and the wider one is given:

    - pooled: alpha's variance from all 2n residuals of the two-curve fit taken as independent
      (2n - 3 degrees of freedom), with the t quantile of n - 1 on the total. This is what
      reproduces published re-analyses.
    - paired: alpha's variance from the curve of the mean of the two (n - 2), since residuals at
      one size go together, with Welch-Satterthwaite degrees of freedom.

    In simulation the first covers 95% near m = 1 but about 90% at m >= 2 with strongly correlated
    residuals, where the second takes over. The second alone covers 95%
    throughout; the wider of the two is deliberately conservative.
    """
    n = len(x_b)
    d = y_b - y_v
    xc_b, xc_v = x_b - x_b.mean(), x_v - x_v.mean()
    yc_b, yc_v = y_b - y_b.mean(), y_v - y_v.mean()
    sxx = float(xc_b @ xc_b + xc_v @ xc_v)
    if sxx < 1e-12:
        raise Refusal("no-compute-range", "All sizes have the same compute, so there is no slope.")
    alpha = -float(xc_b @ yc_b + xc_v @ yc_v) / sxx
    if alpha == 0:
        raise Refusal("no-usable-slope", "The losses together do not change with compute.")
    e_b, e_v = yc_b + alpha * xc_b, yc_v + alpha * xc_v

    mean_e, mean_x = (e_b + e_v) / 2, (xc_b + xc_v) / 2
    var_pooled = float(e_b @ e_b + e_v @ e_v) / (2 * n - 3) / sxx
    var_paired = float(mean_e @ mean_e) / (n - 2) / float(mean_x @ mean_x)

    ratio = float(d.mean()) / alpha
    # Residuals of d, not d itself: where the two computes differ, d is not constant.
    level_part = float((e_b - e_v) @ (e_b - e_v)) / (n - 1) / n / alpha**2
    half_pooled = t_quantile(level, n - 1) * np.sqrt(level_part + (ratio / alpha) ** 2 * var_pooled)
    slope_part = (ratio / alpha) ** 2 * var_paired
    half_paired = _welch_t(level, level_part, n - 1, slope_part, n - 2) * np.sqrt(
        level_part + slope_part
    )
    half = float(max(half_pooled, half_paired))
    ln_m = ratio + float((x_b - x_v).mean())
    return Shift(
        Estimate(ln_m, ln_m - half, ln_m + half, level),
        t_interval(alpha, np.sqrt(var_paired), n - 2, level),
    )


def _welch_t(level: float, v1: float, dof1: int, v2: float, dof2: int) -> float:
    denominator = v1**2 / dof1 + v2**2 / dof2
    return t_quantile(level, (v1 + v2) ** 2 / denominator if denominator > 0 else dof2)


def separate_exponents_shift(x_b, y_b, x_v, y_v, x_at: float, level: float) -> Shift:
    """ln m at ln compute x_at, each curve with its own exponent.

    Delta method over (a_b, alpha_b, a_v, alpha_v) with the covariance of two regressions whose
    residuals at one size are correlated (seemingly unrelated regressions): for equal compute this
    is the regression of d on ln C divided by alpha_b. t interval with n - 2 degrees of freedom.
    """
    b, v = line(x_b, y_b), line(x_v, y_v)
    _require_slopes(b)
    ratio = (b.intercept - v.intercept + v.alpha * x_at) / b.alpha
    gradients = np.array([1, -ratio]) / b.alpha, np.array([-1, x_at]) / b.alpha
    return _delta(x_b, b, x_v, v, ratio - x_at, gradients, level)


def shift_at_loss(x_b, y_b, x_v, y_v, y_at: float, level: float) -> Shift:
    """ln m at ln loss y_at: ln C_base - ln C_variant where each curve has that loss.

    As `separate_exponents_shift`, except that the compute of both curves is uncertain.
    """
    b, v = line(x_b, y_b), line(x_v, y_v)
    _require_slopes(b, v)
    ln_C_b, ln_C_v = ((fit.intercept - y_at) / fit.alpha for fit in (b, v))
    gradients = np.array([1, -ln_C_b]) / b.alpha, np.array([-1, ln_C_v]) / v.alpha
    return _delta(x_b, b, x_v, v, ln_C_b - ln_C_v, gradients, level)


def _require_slopes(*lines: Line) -> None:
    if any(fit.alpha == 0 for fit in lines):
        raise Refusal("no-usable-slope", "The losses of one curve do not change with compute.")


def _delta(x_b, b: Line, x_v, v: Line, ln_m: float, gradients, level: float) -> Shift:
    """With the gradients of ln m in (intercept, alpha) of both lines."""
    of_b, of_v = gradients
    variance = of_b @ b.cov @ of_b + of_v @ v.cov @ of_v
    variance += 2 * of_b @ _cross_cov(x_b, b, x_v, v) @ of_v
    return Shift(
        t_interval(ln_m, np.sqrt(max(variance, 0)), b.dof, level),
        t_interval(b.alpha, np.sqrt(b.cov[1, 1]), b.dof, level),
    )


def crossing(x_b, y_b, x_v, y_v, level: float) -> tuple[float, Shift, Shift] | None:
    """Where in the common range the better curve becomes the worse one, if that is shown.

    Returns:
      ln compute of the crossing, and the shifts at both ends of the range; None where their
      intervals do not lie on different sides of ln m = 0.
    """
    low, high = max(x_b.min(), x_v.min()), min(x_b.max(), x_v.max())
    ends = [separate_exponents_shift(x_b, y_b, x_v, y_v, at, level) for at in (low, high)]
    first, last = (shift.ln_m for shift in ends)
    if not (first.low > 0 > last.high or first.high < 0 < last.low):
        return None
    b, v = line(x_b, y_b), line(x_v, y_v)
    return (b.intercept - v.intercept) / (b.alpha - v.alpha), *ends


def exponent_difference(x_b, y_b, x_v, y_v, level: float) -> Estimate:
    """alpha_variant - alpha_baseline with its paired t interval (n - 2 degrees of freedom)."""
    b, v = line(x_b, y_b), line(x_v, y_v)
    variance = b.cov[1, 1] + v.cov[1, 1] - 2 * _cross_cov(x_b, b, x_v, v)[1, 1]
    return t_interval(v.alpha - b.alpha, np.sqrt(max(variance, 0)), b.dof, level)


def _cross_cov(x_b, b, x_v, v) -> np.ndarray:
    """Cov of (a_b, alpha_b) with (a_v, alpha_v): s_bv (Xb'Xb)^-1 Xb'Xv (Xv'Xv)^-1."""
    design_b = np.stack([np.ones_like(x_b), -x_b], axis=1)
    design_v = np.stack([np.ones_like(x_v), -x_v], axis=1)
    s_bv = float(b.residuals @ v.residuals) / b.dof
    return s_bv * b.unit_cov @ (design_b.T @ design_v) @ v.unit_cov
