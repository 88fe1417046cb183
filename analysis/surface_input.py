"""What a fit of L(N, D) is given: points, weights and resamples, checked."""

from numbers import Integral

import numpy as np
import pandas as pd

from analysis.apart import varied_apart
from analysis.errors import Refusal

MIN_DECADES = 0.5
MIN_RESAMPLES = 100
MIN_CLUSTERS = 5


def require_points(N, D, loss, n_needed: int) -> None:
    """Refuses what L(N, D) cannot be fitted to."""
    if not (N.ndim == 1 and N.shape == D.shape == loss.shape):
        raise Refusal("bad-shape", "N, D and loss must be three rows of one length.")
    for name, values in (("N", N), ("D", D), ("loss", loss)):
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise Refusal("not-positive", f"{name} must be finite and above 0 at every point.")
    if len(loss) < n_needed:
        raise Refusal(
            "too-few-points",
            f"L(N, D) has {n_needed - 3} parameters and is given {len(loss)} points; at least "
            f"{n_needed} are needed.",
        )
    for name, values in (("N", N), ("D", D)):
        decades = float(np.ptp(np.log10(values)))
        if decades < MIN_DECADES:
            raise Refusal(
                "no-range",
                f"{name} spans {decades:.2f} decades; below {MIN_DECADES} its exponent cannot be "
                "told from the floor. Vary it more.",
            )
    if not varied_apart(np.log(N), np.log(D)):
        raise Refusal(
            "not-varied-apart",
            "N and D go together (D is a power of N within 10%), so that the two terms can change "
            "places. Add sizes with more or fewer tokens, or fit L = E + A C^-alpha.",
        )


def require_floor(floor: float | str, least: float) -> None:
    """Refuses a floor that is neither free nor below the least loss."""
    if floor == "free":
        return
    if isinstance(floor, str):
        raise Refusal("bad-option", f"floor is {floor!r}; give nats, or free.")
    if not 0 <= floor < least:
        raise Refusal(
            "floor-too-high",
            f"The floor is pinned at {floor:g} nats, and the least loss is {least:.4g}; it must "
            "be 0 or more, and below every loss.",
        )


def weights_of_mean_one(weights, n_points: int) -> np.ndarray:
    """[n_points] of mean 1."""
    weights = np.ones(n_points) if weights is None else np.asarray(weights, float)
    if weights.shape != (n_points,) or not (np.isfinite(weights) & (weights > 0)).all():
        raise Refusal(
            "bad-weights",
            f"The weights must be {n_points} numbers, one a point, all finite and above 0.",
        )
    return weights / weights.mean()


def resampled(rng, n_resamples: int, clusters, n_points: int) -> np.ndarray:
    """[n_resamples, n_points]: how often each point is drawn."""
    if not isinstance(n_resamples, Integral) or (n_resamples and n_resamples < MIN_RESAMPLES):
        raise Refusal(
            "bad-option",
            f"n_resamples is {n_resamples}; it must be 0, or a whole number from {MIN_RESAMPLES}.",
        )
    if clusters is None:
        return rng.multinomial(n_points, np.full(n_points, 1 / n_points), n_resamples).astype(float)
    clusters = np.asarray(clusters, object)
    if clusters.shape != (n_points,):
        raise Refusal("bad-shape", f"clusters must be {n_points} labels, one a point.")
    labels, names = pd.factorize(clusters)
    if (labels < 0).any():
        raise Refusal("bad-shape", "A label in clusters is missing; every point needs one.")
    n = len(names)
    if n_resamples and n < MIN_CLUSTERS:
        raise Refusal(
            "too-few-clusters",
            f"clusters has {n} distinct labels, which are what is drawn; intervals need at least "
            f"{MIN_CLUSTERS}.",
        )
    return rng.multinomial(n, np.full(n, 1 / n), n_resamples)[:, labels].astype(float)
