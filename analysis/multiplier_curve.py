"""The multiplier as a function of compute."""

import numpy as np
import pandas as pd

from analysis.cells import pair
from analysis.multiplier import multiplier
from analysis.shift import separate_exponents_shift


def multiplier_curve(
    df: pd.DataFrame,
    variant: str,
    baseline: str | None = None,
    n_points: int = 60,
    level: float = 0.95,
) -> pd.DataFrame:
    """m(C) = C_base(L_variant(C)) / C over the variant's compute, each curve with its own exponent.

    Args:
      df, variant, baseline: as of `analysis.multiplier`.
      n_points: evenly spaced in ln C.
      level: of the pointwise intervals.

    Returns:
      Columns pflops_days, multiplier, low, high, and inside: whether the variant's fitted loss lies
      within the losses that the baseline was observed at; elsewhere the baseline is extrapolated.

    Raises:
      Refusal: those of `analysis.multiplier`, except that curves may cross.
    """
    some_compute = float(df["pflops_days"].iloc[0])  # where curves cross, one must be named
    m = multiplier(df, variant, baseline, some_compute, level)
    pairs = pair(df, [m.baseline, m.variant])
    x_b, x_v = (pairs.ln_compute[v] for v in (m.baseline, m.variant))
    y_b, y_v = (pairs.ln_loss(v) for v in (m.baseline, m.variant))
    rows = []
    for x in np.linspace(x_v.min(), x_v.max(), n_points):
        shift = separate_exponents_shift(x_b, y_b, x_v, y_v, x, level)
        m_x = shift.ln_m.exp()
        y = np.polyval(np.polyfit(x_v, y_v, 1), x)
        rows.append((np.exp(x), m_x.value, m_x.low, m_x.high, y_b.min() <= y <= y_b.max()))
    return pd.DataFrame(rows, columns=["pflops_days", "multiplier", "low", "high", "inside"])
