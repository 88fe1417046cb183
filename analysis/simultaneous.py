"""Several multipliers whose intervals hold together."""

import pandas as pd

from analysis.cells import pair
from analysis.multiplier import Multiplier
from analysis.shift import shared_exponent_shift
from analysis.stats import Estimate


def simultaneous(df: pd.DataFrame, multipliers: list[Multiplier]) -> dict[str, Estimate]:
    """Shared-exponent multipliers by variant, whose intervals jointly hold with their level.

    (Bonferroni: of k comparisons each at 1 - (1 - level) / k.) Without those whose curves cross,
    which have no single multiplier.
    """
    found = {}
    for m in (m for m in multipliers if m.crosses_at is None):
        pairs = pair(df, [m.baseline, m.variant])
        x_b, x_v = pairs.ln_compute[m.baseline], pairs.ln_compute[m.variant]
        y_b, y_v = pairs.ln_loss(m.baseline), pairs.ln_loss(m.variant)
        each = 1 - (1 - m.level) / len(multipliers)
        found[m.variant] = shared_exponent_shift(x_b, y_b, x_v, y_v, each).ln_m.exp()
    return found
