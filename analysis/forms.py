"""The same points under other laws and other objectives, side by side."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from analysis.cells import require_loaded, size_means
from analysis.errors import Refusal
from analysis.floor import Curves, Floor, FloorFits, fit_floors
from analysis.floor_profile import exponent_interval, require_identified
from analysis.objectives import Huber, LeastAbsolute, LeastSquares, Objective
from analysis.record import Record
from analysis.stats import Estimate
from analysis.surface import fit_surface

LAWS: dict[str, tuple[Floor, Objective]] = {
    "A C^-alpha": (0.0, LeastSquares()),
    "A C^-alpha, Huber": (0.0, Huber(1e-3)),
    "A C^-alpha, absolute": (0.0, LeastAbsolute()),
    "E + A C^-alpha": ("free", LeastSquares()),
}
N_RESAMPLES = 1000  # of sizes, for L(N, D)
ADDITIVE = "E + A N^-alpha + B D^-beta"


@dataclass(frozen=True)
class Form(Record):
    """One law fitted to one variant; None where it is refused, or has no such parameter."""

    variant: str
    form: str
    E: float | None = None  # nats
    alpha: float | None = None  # of compute; of parameters in L(N, D)
    beta: float | None = None  # of tokens
    intervals: dict[str, Estimate] | None = None  # for log least squares and for L(N, D)
    rmse: float | None = None  # of ln L
    aicc: float | None = None  # of log least squares, where there are points enough for it
    largest: float | None = None  # relative error on the largest size, predicted from the others
    refused: str | None = None


def forms(df: pd.DataFrame, seed: int = 0) -> list[Form]:
    """Every variant under every form and objective that its points allow.

    AICc = n ln(SSE / n) + 2 k + 2 k (k + 1) / (n - k - 1), with the variance among the k parameters
    (Hurvich and Tsai 1989); it compares forms of log least squares on the same points, and five
    points are too few for a law with a floor. L(N, D) is fitted by Huber's function, with a
    bootstrap over sizes.

    Args:
      df: from `analysis.load`; n_params_non_embedding and tokens are needed for L(N, D).
      seed: of that bootstrap.
    """
    require_loaded(df)
    found = []
    for variant in df["variant"].unique():
        means = size_means(df, variant)
        C, L = np.exp(means["ln_compute"].to_numpy()), np.exp(means["ln_loss"].to_numpy())
        for name, (floor, objective) in LAWS.items():
            found.append(_of_compute(str(variant), name, (C, L), floor, objective))
        found += _of_parameters_and_tokens(df[df["variant"] == variant], str(variant), seed)
    return found


def _of_compute(variant, name, curve, floor: Floor, objective: Objective) -> Form:
    curves: Curves = {variant: curve}
    try:
        fits = fit_floors(curves, floor, objective=objective)
        floors = require_identified(curves) if floor == "free" else {}
    except Refusal as reason:
        return Form(variant, name, refused=str(reason))
    law, aicc, intervals = fits.laws[variant], None, None
    if isinstance(objective, LeastSquares):
        aicc, intervals = _aicc(fits), {"alpha": exponent_interval(law, curve, bool(floors))}
        if floors:
            intervals["E"] = floors[variant]
    E, largest = law.E if floors else None, _largest(variant, curve, floor, objective)
    return Form(variant, name, E, law.alpha, None, intervals, law.rmse, aicc, largest)


def _aicc(fits: FloorFits) -> float | None:
    k = len(fits.laws) * (2 if not isinstance(fits.floor, str) else 3) + 1
    n = fits.dof + k - 1
    sse = 2 * fits.convergence.objective
    if n - k - 1 < 1 or sse == 0:
        return None
    return n * math.log(sse / n) + 2 * k + 2 * k * (k + 1) / (n - k - 1)


def _largest(variant: str, curve, floor: Floor, objective: Objective) -> float | None:
    C, L = curve
    try:
        fits = fit_floors({variant: (C[:-1], L[:-1])}, floor, objective=objective)
    except Refusal:
        return None
    return float(fits.laws[variant].predict(C[-1]) / L[-1] - 1)


def _of_parameters_and_tokens(runs: pd.DataFrame, variant: str, seed: int) -> list[Form]:
    """Of size means, as everything here. None where the runs do not say parameters and tokens."""
    columns = ["n_params_non_embedding", "tokens", "loss"]
    if not set(columns) <= set(runs) or not all(map(is_numeric_dtype, runs[columns].dtypes)):
        return []
    points = np.exp(np.log(runs[columns]).groupby(runs["size"]).mean()).to_numpy().T
    try:
        law = fit_surface(*points, n_resamples=N_RESAMPLES, seed=seed)
    except Refusal as reason:
        return [Form(variant, ADDITIVE, refused=str(reason))]
    rmse = float(np.sqrt(np.mean(np.log(law.predict(*points[:2]) / points[2]) ** 2)))
    intervals = {name: law.intervals[name] for name in ("E", "alpha", "beta")}
    return [Form(variant, ADDITIVE, law.E, law.alpha, law.beta, intervals, rmse)]
