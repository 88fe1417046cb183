"""How well a curve, or several together, determine the floor of the loss."""

import numpy as np

from analysis.errors import Refusal
from analysis.floor import AT_LEAST, Curves, FloorFits, FloorLaw, fit_floors
from analysis.stats import Estimate, t_interval, t_quantile


def floor_interval(curves: Curves, exponent: str = "own", level: float = 0.95) -> Estimate:
    """One floor for all curves, with its profile-likelihood interval.

    Those floors are inside whose least sum of squares is at most 1 + k t^2 / dof times the least of
    all. For one curve k = 1, and it is what a t interval would be if the loss were linear in E. The
    residuals of several go together at a size, so that k is 1 + (number of curves - 1) x their mean
    correlation, and t has one curve's degrees of freedom; in 400 made-up studies of two curves the
    intervals held in 98, 96 and 96% at correlations of 0, 0.5 and 0.9. An end at 0 or just below
    the least loss says that the data do not exclude it.

    Args:
      curves: of several, those of one length have the same sizes in the same order.

    Raises:
      Refusal: those of `fit_floors`.
    """
    fits = fit_floors(curves, "shared", exponent)
    E = next(iter(fits.laws.values())).E
    own_dof = max(min(len(C) for C, _ in curves.values()) - 3, 1)
    excess = _design_effect(curves, fits) * t_quantile(level, own_dof) ** 2 / fits.dof
    allowed = fits.convergence.objective * (1 + excess)

    def is_inside(pinned: float) -> bool:
        return fit_floors(curves, pinned, exponent).convergence.objective <= allowed

    def end(outermost: float) -> float:
        if is_inside(outermost):
            return outermost
        inside, outside = E, outermost
        for _ in range(20):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if is_inside(middle) else (inside, middle)
        return inside

    least = min(float(np.min(loss)) for _, loss in curves.values())
    return Estimate(E, end(0.0), end(AT_LEAST * least), level)


def _design_effect(curves: Curves, fits: FloorFits) -> float:
    """How much less than independent ones the points of several curves say."""
    k, lengths = len(curves), {len(C) for C, _ in curves.values()}
    if k == 1:
        return 1.0
    if len(lengths) > 1:  # which points go together is not known
        return float(k)
    r = np.array([np.log(L) - np.log(fits.laws[v].predict(C)) for v, (C, L) in curves.items()])
    size = np.sqrt((r**2).sum(axis=1))
    if not size.all():
        return float(k)
    together = (r @ r.T) / np.outer(size, size)
    return 1 + (k - 1) * max(0.0, float((together.sum() - k) / (k * (k - 1))))


def exponent_interval(law: FloorLaw, curve, with_floor: bool, level: float = 0.95) -> Estimate:
    """alpha of a law fitted to one curve by log least squares, as a delta-method t interval.

    Args:
      curve: (C in PFLOP/s-days, loss in nats).
      with_floor: whether E was fitted too, which costs a degree of freedom.
    """
    C, loss = curve
    J = law.slopes(C, with_floor)
    residuals, dof = np.log(loss) - np.log(law.predict(C)), len(J) - J.shape[1]
    variance = residuals @ residuals / dof * np.linalg.inv(J.T @ J)[1, 1]
    return t_interval(law.alpha, np.sqrt(variance), dof, level)


def require_identified(curves: Curves, level: float = 0.95) -> dict[str, Estimate]:
    """The floor of each curve alone; refused where its points do not tell it from zero.

    Raises:
      Refusal: "floor-unidentified", and those of `floor_interval`.
    """
    found = {}
    for name, curve in curves.items():
        E = found[name] = floor_interval({name: curve}, level=level)
        if E.low == 0:
            raise Refusal(
                "floor-unidentified",
                f"The floor of '{name}' alone is {E.value:.2f} nats [0, {E.high:.2f}]: its "
                f"{len(curve[0])} sizes do not tell it from zero. A wider range of compute would.",
            )
    return found
