"""IsoFLOP profiles: at each budget the size of least loss, and its law in the budget."""

from dataclasses import asdict, dataclass

import numpy as np

from analysis.errors import Refusal
from analysis.stats import Estimate, line, t_interval

MIN_POINTS = 4  # a parabola and one to judge it


@dataclass(frozen=True)
class Profile:
    """A parabola of loss in ln N at one budget."""

    flops: float
    n_opt: float  # parameters of least loss
    loss_opt: float  # nats, at n_opt
    curvature: float  # nats per (ln N)^2
    n_points: int
    rmse: float  # nats


@dataclass(frozen=True)
class OptimumLaw:
    """N*(C) = G C^a, or the same of D*: ln N* regressed on ln C."""

    exponent: Estimate
    coefficient: float
    n_budgets: int
    r2: float

    def to_dict(self) -> dict:
        """Plain numbers, at full precision."""
        return asdict(self)


def profile(flops: float, N: np.ndarray, loss: np.ndarray) -> Profile:
    """Least squares of loss on 1, ln N, (ln N)^2 at one budget.

    (Approach 2 of Hoffmann et al., arXiv 2203.15556, section 3.2.)

    Args:
      flops: of training, the same for all points.
      N, loss: [n_points] parameters and nats.

    Raises:
      Refusal: "too-few-points"; "not-finite"; "no-minimum": the parabola opens downwards;
        "non-interior-minimum": it lies outside the sizes that were trained.
    """
    x, y = np.log(np.asarray(N, float)), np.asarray(loss, float)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise Refusal(
            "not-finite", f"At {flops:.3g} FLOP a size or a loss is not finite; leave it out."
        )
    if len(np.unique(x)) < MIN_POINTS:
        raise Refusal(
            "too-few-points",
            f"The budget {flops:.3g} FLOP has {len(np.unique(x))} sizes; a parabola with something "
            f"left to judge it needs {MIN_POINTS}.",
        )
    centre = x.mean()
    c2, c1, c0 = np.polyfit(x - centre, y, 2)
    if c2 <= 0:
        raise Refusal(
            "no-minimum",
            f"At {flops:.3g} FLOP the losses do not curve upwards in ln N, so there is no least "
            "one. Add smaller and larger models.",
        )
    at = -c1 / (2 * c2) + centre
    if not x.min() < at < x.max():
        side = "smaller" if at <= x.min() else "larger"
        raise Refusal(
            "non-interior-minimum",
            f"At {flops:.3g} FLOP the least loss lies at {np.exp(at):.3g} parameters, outside what "
            f"was trained ({np.exp(x.min()):.3g} to {np.exp(x.max()):.3g}). Add {side} models.",
        )
    fitted = np.polyval((c2, c1, c0), x - centre)
    least = float(c0 - c1**2 / (4 * c2))
    rmse = float(np.sqrt(np.mean((y - fitted) ** 2)))
    return Profile(flops, float(np.exp(at)), least, float(c2), len(x), rmse)


def optimum_law(
    flops: np.ndarray, optimum: np.ndarray, weights: np.ndarray | None = None, level: float = 0.95
) -> OptimumLaw:
    """ln optimum = ln G + a ln C by (weighted) least squares over budgets.

    Args:
      flops, optimum: [n_budgets]; optimum is N* or D*.
      weights: [n_budgets], such as one over the variance of ln optimum.

    Raises:
      Refusal: "too-few-points": fewer than three budgets; "not-finite".
    """
    x, y = np.log(np.asarray(flops, float)), np.log(np.asarray(optimum, float))
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise Refusal("not-finite", "A budget or an optimum is not finite and above 0.")
    if len(np.unique(x)) < 3:
        raise Refusal(
            "too-few-points",
            f"{len(np.unique(x))} budgets give no law with an interval; 3 are needed.",
        )
    if weights is None:
        law = line(x, y)
        a, var, residuals = -law.alpha, law.cov[1, 1], law.residuals
        ln_G = law.intercept
    else:
        w = np.asarray(weights, float) / np.sum(weights)
        xm, ym = w @ x, w @ y
        xc = x - xm
        sxx = w @ xc**2
        a = float(w @ (xc * (y - ym)) / sxx)
        ln_G = float(ym - a * xm)
        residuals = y - ln_G - a * x
        var = float(w @ residuals**2) * len(x) / (len(x) - 2) / (sxx * len(x))
    r2 = 1 - float(residuals @ residuals) / float(((y - y.mean()) ** 2).sum())
    interval = t_interval(a, float(np.sqrt(var)), len(x) - 2, level)
    return OptimumLaw(interval, float(np.exp(ln_G)), len(x), r2)
