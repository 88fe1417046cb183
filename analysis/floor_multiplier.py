"""A multiplier under a floor of the loss, with its paired interval."""

import math
from dataclasses import dataclass

import numpy as np

from analysis.errors import Refusal
from analysis.floor import Curves, Floor, fit_floors
from analysis.floor_profile import floor_interval, require_identified
from analysis.stats import Estimate, t_interval

N_FLOORS = 9  # of an unknown floor's interval


def under_pinned_floor(
    curves: Curves,
    base: str,
    variant: str,
    E: float,
    at: float,
    level: float = 0.95,
    at_loss: float | None = None,
) -> Estimate:
    """m at compute `at`, where L = E + A C^-alpha for both, each with its own exponent.

    Or where the variant has the loss `at_loss`. At E = 0 it is
    `analysis.shift.separate_exponents_shift`.

    Args:
      curves: of both, the same sizes in the same order.

    Raises:
      Refusal: those of `analysis.floor.fit_floors`, and of its multiplier.
    """
    pair = {name: curves[name] for name in (base, variant)}
    return _multiplier(pair, E, base, variant, at, level, at_loss)


def under_own_floors(
    curves: Curves,
    base: str,
    variant: str,
    at: float,
    level: float = 0.95,
    at_loss: float | None = None,
) -> Estimate:
    """m at compute `at`, or the loss `at_loss`, each curve with its own floor and exponent.

    Raises:
      Refusal: those of `under_pinned_floor`; "floor-unidentified"; "too-few-points": under four.
    """
    pair = {name: curves[name] for name in (base, variant)}
    require_identified(pair, level)
    return _multiplier(pair, "free", base, variant, at, level, at_loss)


def _multiplier(
    curves: Curves,
    floor: Floor,
    base: str,
    variant: str,
    at: float,
    level: float,
    at_loss: float | None,
) -> Estimate:
    """Delta method, with the covariance of two fits whose residuals at one size go together.

    With R = A C^-alpha at `at` and z = E_variant + R_variant - E_base, ln m is
    (ln R_base - ln z) / alpha_base.
    """
    if at_loss is not None:
        law = fit_floors(curves, floor, at=at).laws[variant]
        at = law.compute(at_loss)
        if not math.isfinite(at):
            raise Refusal(
                "below-floor",
                f"No compute brings '{variant}' to {at_loss:.4g} nats: its floor is {law.E:.4g}.",
            )
    fits = fit_floors(curves, floor, at=at)
    m = fits.multiplier(base, variant, at)  # which refuses what has no answer
    b, v = fits.laws[base], fits.laws[variant]
    ln_m, z = math.log(m), v.E + v.reducible - b.E
    residuals = np.array(
        [np.log(L) - np.log(fits.laws[n].predict(C)) for n, (C, L) in curves.items()]
    )
    J_b, J_v = (fits.laws[n].slopes(curves[n][0], fits.floor == "free") for n in (base, variant))
    dof = J_b.shape[0] - J_b.shape[1]
    noise = residuals @ residuals.T / dof
    to_b, to_v = (np.linalg.solve(J.T @ J, J.T) for J in (J_b, J_v))
    of_b = np.array([1, -ln_m, b.E / z])[: J_b.shape[1]] / b.alpha @ to_b
    of_v = np.array([-v.reducible, 0, -v.E])[: J_v.shape[1]] / z / b.alpha @ to_v
    variance = noise[0, 0] * of_b @ of_b + noise[1, 1] * of_v @ of_v
    variance += 2 * noise[0, 1] * of_b @ of_v
    return t_interval(ln_m, np.sqrt(max(variance, 0)), dof, level).exp()


@dataclass(frozen=True)
class UnknownFloor:
    """One floor for both curves, and the multiplier that goes with it."""

    E: Estimate  # nats, profile likelihood
    multiplier: Estimate  # the hull of the intervals under floors in E's interval


def under_shared_floor(
    curves: Curves,
    base: str,
    variant: str,
    at: float,
    level: float = 0.95,
    at_loss: float | None = None,
) -> UnknownFloor:
    """m at `at` or `at_loss` if all that is known of the floor is what both curves say of it.

    The hull of the intervals under nine floors in E's interval. Two intervals at 95% guarantee 90%
    together; in simulation the hull holds more often than either (`analysis.coverage`).

    Raises:
      Refusal: those of `analysis.floor_profile.floor_interval`.
    """
    E = floor_interval({name: curves[name] for name in (base, variant)}, level=level)
    best = under_pinned_floor(curves, base, variant, E.value, at, level, at_loss)
    low, high = best.low, best.high
    for floor in np.linspace(E.low, E.high, N_FLOORS):
        found = under_pinned_floor(curves, base, variant, float(floor), at, level, at_loss)
        low, high = min(low, found.low), max(high, found.high)
    return UnknownFloor(E, Estimate(best.value, low, high, level))
