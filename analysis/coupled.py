"""L = E + (A / N^a + B / D^b)^k: how a lack of parameters and a lack of tokens come together.

k = 1 is the additive law (Hoffmann et al., arXiv 2203.15556, Eq. 2); E = 0, b = 1 and k = alpha_D
is that of Kaplan et al. (arXiv 2001.08361, Eq. 1.5; a = alpha_N / alpha_D). It is fitted as

    L - E = 2 ((G^(1/k) + H^(1/k)) / 2)^k,    G = 2^(k-1) (A / N^a)^k,    H = 2^(k-1) (B / D^b)^k

twice a mean of G and H: the greater of them where k is near 0, the arithmetic mean where k is 1,
the geometric where k is large. G and H have the exponents k a and k b, which hold where one of them
dominates; where both matter, k is told.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from analysis.errors import Refusal
from analysis.logsum import Terms, minimise, products
from analysis.objectives import Objective
from analysis.stats import Estimate, t_quantile

MOST = 32.0  # the greatest k that is tried; the least is 1 / MOST
SWEEPS = 3  # of fits from those of neighbouring k, for there are local minima far from the optimum
ROUNDING = 1e-12  # of residuals


@dataclass(frozen=True)
class Coupled:
    """A `Law` of three terms, ln of E, G and H. theta: theirs, and ln k, which can be held."""

    terms: Terms
    held: bool = False

    def ln_loss(self, theta: np.ndarray) -> np.ndarray:
        """[..., n_points] at theta [..., n_parameters]."""
        floor, g, h, k = self._parts(theta)
        return np.logaddexp(floor, g + k * np.logaddexp(0, (h - g) / k) - (k - 1) * np.log(2))

    def expand(self, theta: np.ndarray):
        """As `Law` has it. p and q: the shares of L - E in L and of A / N^a in its sum."""
        floor, g, h, k = self._parts(theta)
        ln_q, ln_not_q = -np.logaddexp(0, (h - g) / k), -np.logaddexp(0, (g - h) / k)
        v = g - k * ln_q - (k - 1) * np.log(2)  # ln (L - E)
        f = np.logaddexp(floor, v)
        p, q, not_q = np.exp(v - f), np.exp(ln_q), np.exp(ln_not_q)
        v_k = -k * (q * ln_q + not_q * ln_not_q + np.log(2))  # the derivative of v by ln k
        v_gg = q * not_q / k  # the second derivative of v by g
        if self.held:
            v_k, moved = np.zeros_like(v_k), np.zeros_like(v_k)
        else:
            moved = h - g  # of (g - h) / k by ln k, times k
        _, Z_g, Z_h = self.terms.Z
        share = np.stack([np.exp(floor - f), p * q, p * not_q], axis=1)
        J = np.einsum("bkn,knp->bnp", share, self.terms.Z, optimize=True)

        def second(s: np.ndarray) -> np.ndarray:
            p_gg, s_p = p * v_gg * (1 - k), s * p
            H = products(
                s[:, None] * np.append(share, p_gg[:, None], axis=1),
                np.append(self.terms.Z, (Z_g - Z_h)[None], axis=0),
            )
            row = (s_p * (v_k * q + v_gg * moved)) @ Z_g + (
                s_p * (v_k * not_q - v_gg * moved)
            ) @ Z_h
            corner = (s_p * (v_k**2 + v_k + v_gg * moved**2)).sum(axis=-1, keepdims=True)
            H = np.append(H, row[:, None], axis=1)
            return np.append(H, np.append(row, corner, axis=1)[..., None], axis=2)

        return f, np.append(J, (p * v_k)[..., None], axis=-1), second

    def _parts(self, theta: np.ndarray):
        """ln of E, G and H, each [..., n_points], and k, [..., 1]."""
        floor, g, h = np.moveaxis(self.terms.exponents(theta[..., :-1]), -2, 0)
        return floor, g, h, np.exp(theta[..., -1:])


@dataclass(frozen=True)
class Coupling:
    """What the points say of k.

    For least squares this is the F test with 1 and n - p degrees of freedom, and the interval is
    where that is at most t^2. For other objectives twice what one exceeds the least by is divided
    not by the variance but by the sum of squared slopes over n - p, over the mean curvature: that
    of a slope averaged over the spread of the residuals, as it jumps or is flat in the small
    (Schrader and Hettmansperger, Biometrika 67, 1980).
    """

    k: Estimate  # an end at 1/32 or 32, beyond which none is tried, says that none is excluded
    additive: float  # the least objective with k = 1
    F: float  # of k = 1 against the fitted k
    p_value: float  # of k = 1
    profile: tuple[tuple[float, float], ...]  # (k, the least objective with it)


def require_determined(ln_k: float) -> None:
    """Refuses a k beyond what is tried.

    Raises:
      Refusal: "coupling-not-determined".
    """
    if not abs(ln_k) < np.log(MOST):
        raise _undetermined(ln_k)


def coupling(
    terms: Terms, y, objective: Objective, weights, theta: np.ndarray, additive: np.ndarray, level
) -> Coupling:
    """The profile of k about the optimum `theta`; `additive` is that of k = 1.

    Args:
      y, weights: [n_points].
      theta: [n_parameters], ln k the last; additive: without it.

    Raises:
      Refusal: "coupling-not-determined": no k that is tried is excluded.
    """
    w, dof, ln_k = objective.weights(y) * weights, len(y) - len(theta), theta[-1]

    def residuals(theta) -> np.ndarray:
        return Coupled(terms).ln_loss(theta) - y

    def held(ln_ks: np.ndarray, *near: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For every k the excess of the objective, its root, and theta.

        The least of fits from all that is near: [n_ks, n_parameters] or [n_parameters].
        """
        starts = np.stack([np.broadcast_to(t, (len(ln_ks), len(theta))) for t in near])
        starts[..., -1] = ln_ks
        found = minimise(
            Coupled(terms, held=True), y, objective, starts.reshape(-1, len(theta)), weights
        )
        values = found.objective.reshape(starts.shape[:2])
        i = np.nanargmin(values, axis=0), np.arange(len(ln_ks))
        return np.sqrt(np.maximum(values[i] - least, 0)), found.theta.reshape(starts.shape)[i]

    r = residuals(theta)
    least, s = (w * objective.value(r)).sum(), _scale(r, w, dof, objective)
    limit = t_quantile(level, dof) * np.sqrt(s / 2)  # of the root of what is exceeded

    tried = np.sort(np.append(np.log(MOST) * np.linspace(-1, 1, 21), ln_k))
    excess, thetas = held(tried, theta, np.append(additive, 0.0))
    for _ in range(SWEEPS):
        before = excess
        excess, thetas = held(tried, thetas, *(np.roll(thetas, by, axis=0) for by in (1, -1)))
        if np.allclose(excess, before, atol=1e-6 * limit):
            break

    def end(outward: np.ndarray) -> float:
        """ln k where the interval ends, among what is tried from the optimum outward."""
        inside = np.flatnonzero(excess[outward] <= limit).max(initial=0)
        if inside == len(outward) - 1:
            return tried[outward[-1]]
        here, there = outward[inside], outward[inside + 1]
        finer = np.linspace(tried[here], tried[there], 9)
        return np.interp(
            limit, np.maximum.accumulate(held(finer, thetas[here], thetas[there])[0]), finer
        )

    i = int(np.searchsorted(tried, ln_k))
    low, high = end(np.arange(i, -1, -1)), end(np.arange(i, len(tried)))
    if low == tried[0] and high == tried[-1]:
        raise _undetermined(ln_k)
    exceeded = (w * objective.value(residuals(np.append(additive, 0.0)))).sum() - least
    F = max(0.0, 2 * exceeded / s)
    return Coupling(
        Estimate(*(float(np.exp(v)) for v in (ln_k, low, high)), level), float(exceeded + least),
        float(F), float(2 * stdtr(dof, -np.sqrt(F))),
        tuple(zip(np.exp(tried).tolist(), (least + excess**2).tolist(), strict=True)),
    )  # fmt: skip


def _scale(r: np.ndarray, w: np.ndarray, dof: int, objective: Objective) -> float:
    """What the objective's excess is measured in: the variance, for least squares."""
    r = np.where(np.abs(r) < ROUNDING, ROUNDING, r)
    free = np.argsort(np.abs(r))[-dof:]  # the parameters make as many residuals small as they are
    h = 1.001 * np.quantile(np.abs(r[free]), 0.4)  # wide enough to have some within it
    bend = (objective.slope(r[free] + h) - objective.slope(r[free] - h)) / (2 * h)
    return (w * objective.slope(r) ** 2).sum() / dof / np.average(bend, weights=w[free])


def _undetermined(ln_k: float) -> Refusal:
    return Refusal(
        "coupling-not-determined",
        f"The points do not determine how N and D couple (k is {np.exp(ln_k):.3g}, and others fit "
        "as well): take k = 1, the additive law, or add points where parameters and tokens both "
        "limit the loss.",
    )
