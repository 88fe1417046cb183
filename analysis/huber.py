"""The multiplier by Huber's function, which a bad run cannot move far."""

import numpy as np

from analysis.errors import Refusal
from analysis.floor import Curves, fit_floors
from analysis.logsum import Terms, minimise
from analysis.objectives import Huber
from analysis.stats import Estimate

OBJECTIVE = Huber(1e-3)
CLIPPED = 3  # robust standard deviations, beyond which a residual is an outlier
MIN_CONVERGED = 0.95


def huber(
    curves: Curves,
    base: str,
    variant: str,
    n_resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """The shared-exponent multiplier with delta 1e-3 in ln L, and a parametric interval.

    The noise has the covariance of the residuals of the two curves, those of outliers clipped, and
    a scale that is drawn anew for each resample, so that percentiles are as wide as t intervals of
    so few points.

    Args:
      curves: of both, the same sizes in the same order, in PFLOP/s-days and nats.

    Raises:
      Refusal: those of `analysis.floor.fit_floors`; "no-usable-slope"; "bootstrap-failed".
    """
    both = {name: curves[name] for name in (base, variant)}
    fits = fit_floors(both, 0.0, "shared", OBJECTIVE)
    b, v = fits.laws[base], fits.laws[variant]
    fits.multiplier(base, variant, b.at)  # which refuses a slope that is not above 0
    x = np.concatenate([np.log(C / b.at) for C, _ in both.values()])
    n = len(x) // 2
    Z = np.stack([np.arange(2 * n) < n, np.arange(2 * n) >= n, -x], axis=1).astype(float)
    theta = np.array([np.log(b.reducible), np.log(v.reducible), b.alpha])
    residuals = np.concatenate([np.log(L) for _, L in both.values()]) - Z @ theta
    # Not their median, which is all but zero where the fit goes through several points; of normal
    # noise three quarters lie within 1.15 standard deviations.
    widest = CLIPPED * np.quantile(np.abs(residuals), 0.75) / 1.15
    clipped = np.clip(residuals, -widest, widest).reshape(2, n)
    rng, dof = np.random.default_rng(seed), n - 1.5  # three parameters of two curves
    noise = rng.multivariate_normal(np.zeros(2), clipped @ clipped.T / dof, (n_resamples, n))
    noise *= np.sqrt(dof / rng.chisquare(dof, (n_resamples, 1, 1)))
    y = Z @ theta + np.moveaxis(noise, -1, 1).reshape(n_resamples, 2 * n)
    terms = Terms(Z[None], np.zeros((1, 2 * n)), ("A_base", "A_variant", "alpha"))
    found = minimise(terms, y, OBJECTIVE, np.broadcast_to(theta, (n_resamples, 3)))
    if found.converged.mean() < MIN_CONVERGED:
        raise Refusal("bootstrap-failed", "Over 5% of the resamples by Huber do not converge.")
    draws = found.theta[found.converged]
    ln_m = (draws[:, 0] - draws[:, 1]) / draws[:, 2]
    low, high = np.quantile(ln_m, ((1 - level) / 2, (1 + level) / 2))
    return Estimate((theta[0] - theta[1]) / theta[2], float(low), float(high), level).exp()
