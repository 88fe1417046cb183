"""Laws whose loss is a sum of positive terms, each a power of what was varied: one fitter for all.

    ln L = ln sum_k exp(offset_k + Z_k theta)

L = A C^-alpha is one term, a floor E is one more (Z = 1, theta = ln E), L(N, D) has three; an
exponent that variants share is one column of Z for all their points. In theta, ln L is convex and
its derivatives are those of a log-sum-exp, so that Newton's method needs neither scaled parameters
nor numerical gradients. All starts, and all resamples of a bootstrap, are solved at once.

The fitter takes any `Law` that can expand ln L; `analysis.coupled` has one that is no such sum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from analysis.objectives import Huber, LeastAbsolute, Objective

MAX_STEPS = 400
# The gradient is compared with what it would be if no residuals cancelled.
GRADIENT_TOLERANCE = 1e-7


class Law(Protocol):
    """ln L of each point as a function of the parameters theta, without bounds."""

    def ln_loss(self, theta: np.ndarray) -> np.ndarray:
        """[..., n_points] at theta [..., n_parameters]."""

    def expand(
        self, theta: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], np.ndarray]]:
        """About theta [b, p]: ln L [b, n], its gradient J [b, n, p], and its second derivatives.

        These as a function from s [b, n] to the sum over points of s L'' / L, [b, p, p]: the
        Hessian of ln L is L'' / L - J J'.
        """


@dataclass(frozen=True)
class Terms:
    """The design of a law. Z: [n_terms, n_points, n_parameters]; offset: [n_terms, n_points].

    An offset of -inf takes a term out of a point's sum, as other variants' floors are.
    """

    Z: np.ndarray
    offset: np.ndarray
    names: tuple[str, ...]  # of the parameters

    def ln_loss(self, theta: np.ndarray) -> np.ndarray:
        """[..., n_points] at theta [..., n_parameters]."""
        return _logsumexp(self.exponents(theta))

    def expand(self, theta: np.ndarray):
        """As `Law` has it: L'' / L = sum_k share_k Z_k Z_k'."""
        t = self.exponents(theta)
        f = _logsumexp(t)
        share = np.exp(t - f[:, None])
        share[~np.isfinite(share)] = 0.0
        J = np.einsum("bkn,knp->bnp", share, self.Z, optimize=True)

        def second(s: np.ndarray) -> np.ndarray:
            return products(s[:, None] * share, self.Z)

        return f, J, second

    def exponents(self, theta: np.ndarray) -> np.ndarray:
        """ln of each term, [..., n_terms, n_points]."""
        return np.einsum("knp,...p->...kn", self.Z, theta, optimize=True) + self.offset


@dataclass(frozen=True)
class Solutions:
    """Where Newton's method ended, for each start or resample. Leading axis: starts."""

    theta: np.ndarray  # [n_starts, n_parameters]
    objective: np.ndarray  # [n_starts], sum over points
    gradient: np.ndarray  # [n_starts], largest component relative to its sum without signs
    converged: np.ndarray  # [n_starts], of bool


def minimise(
    law: Law, y: np.ndarray, objective: Objective, starts: np.ndarray, weights=None
) -> Solutions:
    """From every start, the least sum of weights * objective(fitted ln L - y).

    Args:
      y: ln L, [n_points], or [n_starts, n_points] where every start has data of its own.
      starts: [n_starts, n_parameters].
      weights: like y; all one by default.
    """
    y = np.broadcast_to(y, (len(starts), np.shape(y)[-1]))
    w = objective.weights(y) * (1 if weights is None else weights)
    theta = np.array(starts, float)
    if isinstance(objective, LeastAbsolute):
        for delta in 10.0 ** np.arange(-2, -9.5, -0.5):
            theta = _newton(law, y, w, Huber(delta), theta).theta
        r = law.ln_loss(theta) - y
        last = _newton(law, y, w, Huber(1e-9), theta, steps=0)
        return Solutions(theta, (w * np.abs(r)).sum(-1), last.gradient, last.converged)
    return _newton(law, y, w, objective, theta)


def _newton(law: Law, y, w, objective: Objective, theta, steps: int = MAX_STEPS):
    """Damped: a step must make the sum smaller; what is concave is turned round."""
    theta = theta.copy()
    damping = np.full(len(theta), 1e-3)
    value, g, H, scale, relative = _derivatives(law, y, w, objective, theta)
    active = np.flatnonzero(relative > GRADIENT_TOLERANCE)
    for _ in range(steps):
        if not len(active):
            break
        step = _step(g[active], H[active], scale[active], damping[active])
        trial = theta[active] + step
        new = _derivatives(law, y[active], w[active], objective, trial)
        better = new[0] < value[active]  # also false for a NaN
        kept = active[better]
        theta[kept] = trial[better]
        gained = value[kept] - new[0][better]
        for old, fresh in zip((value, g, H, scale, relative), new, strict=True):
            old[kept] = fresh[better]
        damping[active] = np.where(better, damping[active] / 8, damping[active] * 4)
        damping = np.clip(damping, 1e-14, None)
        done = relative[active] <= GRADIENT_TOLERANCE
        done |= damping[active] > 1e10  # nothing smaller is to be had in floating point
        tiny = np.zeros(len(active), bool)
        tiny[better] = gained <= 1e-15 * np.abs(value[kept])
        active = active[~(done | tiny)]
    return Solutions(theta, value, relative, relative <= 1e3 * GRADIENT_TOLERANCE)


def _step(g: np.ndarray, H: np.ndarray, scale: np.ndarray, damping: np.ndarray) -> np.ndarray:
    """-(|H| + damping)^-1 g, in units of `scale`."""
    with np.errstate(over="ignore", invalid="ignore"):  # far from all that fits
        unit = np.nan_to_num(H / scale[:, :, None] / scale[:, None, :], posinf=0.0, neginf=0.0)
        values, vectors = np.linalg.eigh(unit)
        size = np.abs(values) + damping[:, None]
        along = np.einsum("bqp,bq->bp", vectors, g / scale)
        return -np.einsum("bqp,bp->bq", vectors, along / size) / scale


def _derivatives(law: Law, y, w, objective, theta):
    """The sum, gradient [n, p], Hessian [n, p, p], scale [n, p] and relative gradient [n].

    The scale is the root of the diagonal that iteratively reweighted least squares would have,
    which is never zero: where all residuals are beyond Huber's delta, the Hessian all but vanishes.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        f, J, second = law.expand(theta)
        r = f - y
        slope, curvature = w * objective.slope(r), w * objective.curvature(r)
        g = np.einsum("bn,bnp->bp", slope, J)
        H = np.einsum("bn,bnp,bnq->bpq", curvature - slope, J, J, optimize=True) + second(slope)
        near = np.abs(r) < 1e-12
        reweighted = np.where(near, curvature, slope / np.where(near, 1.0, r))
        scale = np.sqrt(np.einsum("bn,bnp->bp", reweighted, J * J))
        without_signs = np.einsum("bn,bnp->bp", np.abs(slope), np.abs(J))
        relative = (np.abs(g) / np.maximum(without_signs, 1e-300)).max(axis=1)
        value = (w * objective.value(r)).sum(axis=1)
        relative = np.where(np.isfinite(value), relative, np.inf)
        # A perfect fit leaves rounding errors, whose directions mean nothing.
        relative = np.where(value <= 1e-28 * w.sum(axis=1), 0.0, relative)
    H[~np.isfinite(H)] = 0.0
    scale = np.where(np.isfinite(scale), scale, 1.0)
    scale = np.maximum(scale, 1e-12 * scale.max(axis=1, keepdims=True, initial=1e-12))
    return value, np.nan_to_num(g), H, scale, relative


def products(weights: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """The sum over terms and points of weights [b, k, n] times Z Z', [b, p, p]. Z: [k, n, p]."""
    n_points, p = Z.shape[1:]
    each = (
        weights[:, k] @ np.einsum("np,nq->npq", Z_k, Z_k).reshape(n_points, -1)
        for k, Z_k in enumerate(Z)
    )
    return sum(each).reshape(-1, p, p)


def _logsumexp(t: np.ndarray) -> np.ndarray:
    """Over the terms, axis -2."""
    top = t.max(axis=-2, keepdims=True)
    return (top + np.log(np.exp(t - top).sum(axis=-2, keepdims=True)))[..., 0, :]
