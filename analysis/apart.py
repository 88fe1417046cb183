"""Whether two variables were varied apart, so that each can have an exponent of its own."""

import numpy as np

MIN_SPREAD = 0.1  # of ln D about its line on ln N: ten per cent


def varied_apart(ln_N: np.ndarray, ln_D: np.ndarray) -> bool:
    """Whether ln D scatters about its line on ln N, or N is the same everywhere and D is not.

    On a ladder of constant tokens a parameter, rounded to whole batches, it does not.
    """
    if np.ptp(ln_N) < 1e-6:
        return bool(np.std(ln_D) > MIN_SPREAD)
    slope, intercept = np.polyfit(ln_N, ln_D, 1)
    return bool(np.std(ln_D - slope * ln_N - intercept) > MIN_SPREAD)
