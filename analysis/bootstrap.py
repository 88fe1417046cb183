"""The multiplier's interval by resampling, as a check on the closed form."""

from math import comb

import numpy as np
import pandas as pd

from analysis.cells import pair
from analysis.errors import Refusal
from analysis.multiplier import multiplier
from analysis.stats import Estimate

MIN_RESAMPLED = 6


def bootstrap(
    df: pd.DataFrame,
    variant: str,
    baseline: str | None = None,
    kind: str = "parametric",
    n_resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """The shared-exponent multiplier with a percentile interval, always resampled in pairs.

    Percentiles of so few points are too narrow by the factor that t has over the normal
    distribution; `analysis.multiplier` is the headline, and this its check.

    Args:
      df, variant, baseline, level: as of `analysis.multiplier`.
      kind: "parametric": normal noise about both laws, with the covariance of their residuals at
        one size; "sizes": whole sizes are drawn, both variants and all their seeds together.

    Raises:
      Refusal: those of `analysis.multiplier`; "bad-option"; "too-few-sizes": under six for
        "sizes", of which some draws would have no slope.
    """
    m = multiplier(df, variant, baseline, level=level)  # which refuses what has no answer
    base, variant = m.baseline, m.variant
    pairs = pair(df, [base, variant])
    n = len(pairs.sizes)
    x = np.stack([pairs.ln_compute[v] for v in (base, variant)])
    y = np.stack([pairs.ln_loss(v) for v in (base, variant)])
    rng, (value, fitted) = np.random.default_rng(seed), _shift(x, y)
    if kind == "parametric":
        residuals = y - fitted
        covariance = residuals @ residuals.T / (n - 1.5)  # three parameters of two curves
        noise = rng.multivariate_normal(np.zeros(2), covariance, (n_resamples, n))
        draws, _ = _shift(x, fitted + np.moveaxis(noise, -1, 1))
    elif kind == "sizes":
        if n < MIN_RESAMPLED:
            raise Refusal(
                "too-few-sizes",
                f"{n} sizes have {comb(2 * n - 1, n)} distinct resamples, some without a "
                f'slope; {MIN_RESAMPLED} are needed. Use kind "parametric", or the t interval.',
            )
        drawn = rng.integers(0, n, (n_resamples, n))
        drawn = drawn[np.ptp(drawn, axis=1) > 0]
        draws, _ = _shift(np.moveaxis(x[:, drawn], 0, 1), np.moveaxis(y[:, drawn], 0, 1))
    else:
        raise Refusal("bad-option", f"kind is {kind!r}; it must be parametric or sizes.")
    low, high = np.quantile(draws, ((1 - level) / 2, (1 + level) / 2))
    return Estimate(float(value), float(low), float(high), level).exp()


def _shift(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ln m under one exponent, and both fitted laws. x, y: [..., 2, n_sizes]."""
    mean_x, mean_y = x.mean(-1, keepdims=True), y.mean(-1, keepdims=True)
    xc, yc = x - mean_x, y - mean_y
    alpha = -(xc * yc).sum((-2, -1)) / (xc**2).sum((-2, -1))
    fitted = mean_y - alpha[..., None, None] * xc
    dy, dx = (m[..., 0, 0] - m[..., 1, 0] for m in (mean_y, mean_x))
    return dy / alpha + dx, fitted
