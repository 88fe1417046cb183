"""IsoFLOP profiles: at each budget the size of least loss, and its law in the budget."""

from dataclasses import dataclass

import numpy as np

from analysis.errors import Refusal
from analysis.record import Record
from analysis.stats import Estimate, t_interval

MIN_POINTS = 4  # a parabola and one to judge it
FLAT = 1e-9  # nats over the range of sizes, below which a curve is none but of rounding


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
class OptimumLaw(Record):
    """N*(C) = G C^a, or the same of D*: ln N* regressed on ln C."""

    exponent: Estimate
    coefficient: float
    n_budgets: int
    r2: float


def profile(flops: float, N: np.ndarray, loss: np.ndarray) -> Profile:
    """Least squares of loss on 1, ln N, (ln N)^2 at one budget.

    (Approach 2 of Hoffmann et al., arXiv 2203.15556, section 3.2.)

    Args:
      flops: of training, the same for all points.
      N, loss: [n_points] parameters and nats.

    Raises:
      Refusal: "bad-shape"; "too-few-points"; "not-finite"; "no-minimum": the parabola is flat or
        opens downwards; "non-interior-minimum": it lies outside the sizes that were trained.
    """
    N, y = np.asarray(N, float), np.asarray(loss, float)
    if N.ndim != 1 or N.shape != y.shape:
        raise Refusal(
            "bad-shape", f"Sizes have the shape {N.shape} and losses {y.shape}; give one each."
        )
    if not (np.isfinite([flops, *N, *y]).all() and flops > 0 and (N > 0).all()):
        raise Refusal(
            "not-finite",
            f"The budget ({flops:.3g} FLOP), a size or a loss is not finite, or a size is not "
            "above 0; leave it out.",
        )
    x = np.log(N)
    n_sizes = len(np.unique(x.round(3)))  # within a thousandth they are one
    if n_sizes < MIN_POINTS:
        raise Refusal(
            "too-few-points",
            f"The budget {flops:.3g} FLOP has {n_sizes} sizes; a parabola with something left to "
            f"judge it needs {MIN_POINTS}.",
        )
    centre = x.mean()
    c2, c1, c0 = np.polyfit(x - centre, y, 2)
    if c2 * np.ptp(x) ** 2 < FLAT:
        raise Refusal(
            "no-minimum",
            f"At {flops:.3g} FLOP the losses do not curve upwards in ln N, so there is no least "
            "one. Add smaller and larger models.",
        )
    at = np.clip(-c1 / (2 * c2) + centre, -700, 700)  # the logarithms that floats have
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
      weights: [n_budgets], above 0, such as one over the variance of ln optimum.

    Raises:
      Refusal: "bad-shape"; "not-finite"; "too-few-points": fewer than three budgets; "no-range":
        the optimum is the same at all of them; "bad-weights"; "out-of-range".
    """
    C, optimum = np.asarray(flops, float), np.asarray(optimum, float)
    w = np.ones_like(C) if weights is None else np.asarray(weights, float)
    if C.ndim != 1 or not C.shape == optimum.shape == w.shape:
        raise Refusal(
            "bad-shape",
            f"Budgets have the shape {C.shape}, optima {optimum.shape} and weights {w.shape}; give "
            "one each.",
        )
    if not (np.isfinite([C, optimum]).all() and (C > 0).all() and (optimum > 0).all()):
        raise Refusal("not-finite", "A budget or an optimum is not finite and above 0.")
    if not (np.isfinite(w).all() and (w > 0).all()):
        raise Refusal("bad-weights", "A weight is not finite and above 0; leave its budget out.")
    x, y = np.log(C), np.log(optimum)
    n_budgets = len(np.unique(x.round(3)))  # within a thousandth they are one
    if n_budgets < 3:
        raise Refusal(
            "too-few-points", f"{n_budgets} budgets give no law with an interval; 3 are needed."
        )
    if np.ptp(y) < 1e-6:
        raise Refusal("no-range", "The optimum is the same at all budgets; there is no law of it.")
    w = w / w.max()  # first, so that the sum is finite
    w = w / w.sum()
    xm, ym = w @ x, w @ y
    xc, yc = x - xm, y - ym
    sxx = w @ xc**2
    if sxx < 1e-6:
        raise Refusal("bad-weights", "One budget has all the weight; a law needs several.")
    a = float(w @ (xc * yc) / sxx)
    ln_G = float(ym - a * xm)
    residuals = yc - a * xc
    var = float(w @ residuals**2) / (len(x) - 2) / sxx
    if abs(ln_G) > 700:
        raise Refusal(
            "out-of-range", f"The exponent is {a:.3g}, and G beyond all floats: no law of compute."
        )
    r2 = 1 - float(w @ residuals**2) / float(w @ yc**2)
    interval = t_interval(a, float(np.sqrt(var)), len(x) - 2, level)
    return OptimumLaw(interval, float(np.exp(ln_G)), n_budgets, r2)
