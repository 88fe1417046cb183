"""The ratio of two means, with an interval that admits when the denominator may be 0."""

from dataclasses import dataclass

import numpy as np

from analysis.stats import Estimate, mean_interval, t_quantile


@dataclass(frozen=True)
class Ratio:
    """A ratio, or the reason why there is none."""

    estimate: Estimate | None
    undefined_because: str | None


def ratio_of_means(
    numerator: np.ndarray, denominator: np.ndarray, level: float, name: str
) -> Ratio:
    """mean(numerator) / mean(denominator) over paired [n], with Fieller's interval.

    (Fieller 1954, "Some problems in interval estimation".) Undefined where the denominator's own
    t interval contains 0, which is exactly where Fieller's interval is unbounded.
    """
    n = len(denominator)
    if n < 2:
        return Ratio(None, "one size gives no interval for the ratio")
    gain = mean_interval(denominator, level)
    if gain.low <= 0:
        why = f"'{name}' is worse than it" if gain.high < 0 else "not separated from 0"
        return Ratio(
            None,
            f"the gain of '{name}' over the baseline is {gain.value:.4f} nats "
            f"[{gain.low:.4f}, {gain.high:.4f}], {why}",
        )
    a, b = float(numerator.mean()), float(denominator.mean())
    (v_aa, v_ab), (_, v_bb) = np.cov(numerator, denominator, ddof=1) / n
    t2 = t_quantile(level, n - 1) ** 2
    # Roots of (a - r b)^2 = t^2 (v_aa - 2 r v_ab + r^2 v_bb) in r.
    q2, q1, q0 = b**2 - t2 * v_bb, a * b - t2 * v_ab, a**2 - t2 * v_aa
    half = np.sqrt(max(q1**2 - q2 * q0, 0.0))
    return Ratio(Estimate(a / b, float((q1 - half) / q2), float((q1 + half) / q2), level), None)
