"""The delta method without its algebra: every point moved a little, everything fitted anew."""

from collections.abc import Callable

import numpy as np


def paired_standard_error(
    answer: Callable[[np.ndarray], float], y: np.ndarray, residuals: np.ndarray, dof: int
) -> float:
    """Of answer(y), y and residuals [2, n_sizes] of ln L.

    The noise of one size has the covariance of the two curves' residuals; sizes are independent.
    """
    noise = residuals @ residuals.T / dof
    step, slope = 1e-5, np.zeros_like(y)
    for index in np.ndindex(*y.shape):
        up, down = y.copy(), y.copy()
        up[index] += step
        down[index] -= step
        slope[index] = (answer(up) - answer(down)) / (2 * step)
    return float(np.sqrt(np.einsum("in,ij,jn->", slope, noise, slope)))
