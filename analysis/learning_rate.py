"""The best learning rate of a sweep, and its law in model size and tokens."""

from dataclasses import dataclass

import numpy as np

from analysis.apart import varied_apart
from analysis.errors import Refusal
from analysis.record import Record
from analysis.stats import Estimate, t_interval

FLAT = 1e-6  # nats, below which losses differ by rounding
NEAREST = 1.1  # the factor between rates below which there is nothing to find


@dataclass(frozen=True)
class BestRate:
    """The minimum of a parabola in ln(learning rate) through the three rates about the best.

    Or the largest rate that did not diverge, where it is the best and one up to 1.1 times larger
    diverged: the optimum is the edge of stability, and no parabola has it.
    """

    learning_rate: float
    loss: float  # nats, at the minimum
    curvature: float | None  # nats per (ln lr)^2; None at the edge
    tolerance: float | None  # factor within which the parabola rises by less than 0.01 nats


def best_rate(losses: dict[float, float], what: str = "the sweep") -> BestRate:
    """The rate of least loss.

    A sweep is wide and no parabola as a whole: losses rise slowly below the best rate and fast
    above it. Three rates about the best one are, and determine it.

    Args:
      losses: learning rate -> loss in nats; a run that diverged may have NaN or inf.

    Raises:
      Refusal: "not-positive"; "too-few-points": fewer than three finite losses; "no-minimum": they
        are all the same about the best; "non-interior-minimum": the best of the rates is the
        smallest or the largest, of those with a finite loss or of all.
    """
    if not all(0 < lr < np.inf for lr in losses):
        raise Refusal("not-positive", f"{what} has a learning rate that is not finite and above 0.")
    finite = {lr: loss for lr, loss in sorted(losses.items()) if np.isfinite(loss)}
    best = min(finite, key=finite.get, default=0.0)
    beyond = [lr for lr in losses if lr > best and lr not in finite]
    at_edge = bool(finite) and best == max(finite) and beyond
    if at_edge and best > min(finite) and min(beyond) <= NEAREST * best:
        return BestRate(best, finite[best], None, None)
    if len(finite) < 3:
        raise Refusal(
            "too-few-points",
            f"{what} has {len(finite)} learning rates with a finite loss; three are needed.",
        )
    rates = np.array(list(finite))
    y = np.array(list(finite.values()))
    if np.ptp(y) < FLAT:
        raise Refusal(
            "no-minimum", f"{what} has one loss at all of its rates, {y[0]:.4g}, so none is best."
        )
    i = int(y.argmin())
    if at_edge:
        raise Refusal(
            "non-interior-minimum",
            f"{what} is best at {rates[i]:g}, and the next larger rate, {min(beyond):g}, diverged; "
            "add rates between the two.",
        )
    if i in (0, len(y) - 1):
        side = "smaller" if i == 0 else "larger"
        raise Refusal(
            "non-interior-minimum",
            f"{what} is best at {rates[i]:g}, the {'smallest' if i == 0 else 'largest'} of its "
            f"rates ({rates[0]:g} to {rates[-1]:g}); add {side} ones.",
        )
    x = np.log(rates[i - 1 : i + 2])
    if np.ptp(y[i - 1 : i + 2]) < FLAT or np.diff(x).min() < 1e-6:
        raise Refusal(
            "no-minimum",
            f"{what} has no parabola about {rates[i]:g}: the losses of its neighbours are the same "
            "as its own, or a rate is. Leave one out, or add rates farther apart.",
        )
    c2, c1, c0 = np.polyfit(x - x[1], y[i - 1 : i + 2], 2)
    at = -c1 / (2 * c2)
    return BestRate(
        learning_rate=float(np.exp(x[1] + at)),
        loss=float(c0 + c1 * at + c2 * at**2),
        curvature=float(c2),
        tolerance=float(np.exp(min(np.sqrt(0.01 / c2), 700))),
    )


@dataclass(frozen=True)
class RateLaw(Record):
    """ln lr* = ln G + a ln N + b ln D."""

    coefficient: float  # G
    exponent_of_N: Estimate
    exponent_of_D: Estimate | None
    n_points: int
    without_D: str | None  # why there is no exponent of D

    def predict(self, N: float, D: float) -> float:
        """The learning rate for N parameters and D tokens."""
        b = self.exponent_of_D.value if self.exponent_of_D else 0.0
        return self.coefficient * N**self.exponent_of_N.value * D**b


def rate_law(
    N: np.ndarray, D: np.ndarray, learning_rate: np.ndarray, level: float = 0.95
) -> RateLaw:
    """Least squares of ln lr* on ln N and, where it varies apart from N, ln D.

    Along a ladder of constant tokens a parameter, N and D are one variable: the exponent of N then
    holds for that ladder only. (Form: DeepSeek LLM, arXiv 2401.02954, and others.)

    Args:
      N, D, learning_rate: [n_points] parameters, tokens and best rates.

    Raises:
      Refusal: "bad-shape"; "not-positive"; "too-few-points": not one more than there are
        parameters; "no-range"; "out-of-range".
    """
    given = [np.asarray(v, float) for v in (N, D, learning_rate)]
    if given[0].ndim != 1 or any(v.shape != given[0].shape for v in given):
        raise Refusal(
            "bad-shape",
            "N, D and the rates have the shapes "
            f"{', '.join(str(v.shape) for v in given)}; give one each.",
        )
    if not all(np.isfinite(v).all() and (v > 0).all() for v in given):
        raise Refusal("not-positive", "An N, D or learning rate is not finite and above 0.")
    if len(given[0]) < 3:
        raise Refusal(
            "too-few-points", f"{len(given[0])} rates are given for 2 parameters; 3 are needed."
        )
    n, d, y = map(np.log, given)
    columns = [np.ones_like(n), n - n.mean()]
    if np.ptp(n) < 1e-6:
        raise Refusal("no-range", "All points have the same N; the law needs models of two sizes.")
    without_D = None if varied_apart(n, d) else "D goes with N"
    if len(y) < 4:
        without_D = "three points are too few for D"
    apart = without_D is None
    if apart:
        columns.append(d - d.mean())
    X = np.stack(columns, axis=1)
    dof = len(y) - X.shape[1]  # at least one: apart takes four
    theta, *_ = np.linalg.lstsq(X, y, rcond=None)
    residuals = y - X @ theta
    cov = np.linalg.inv(X.T @ X) * (residuals @ residuals) / dof
    a, *b = (
        t_interval(theta[i], float(np.sqrt(cov[i, i])), dof, level) for i in range(1, X.shape[1])
    )
    ln_G = theta[0] - theta[1] * n.mean() - (theta[2] * d.mean() if apart else 0.0)
    if abs(ln_G) > 700:
        raise Refusal(
            "out-of-range", f"The exponent of N is {a.value:.3g}, and G beyond all floats: no law."
        )
    return RateLaw(float(np.exp(ln_G)), a, b[0] if b else None, len(y), without_D)
