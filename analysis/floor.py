"""L = E + A C^-alpha for one or several curves: floor and exponent free, pinned or shared."""

import math
from dataclasses import dataclass

import numpy as np

from analysis.convergence import Convergence, best, lowest
from analysis.errors import Refusal, listed
from analysis.logsum import Terms, minimise
from analysis.objectives import LeastSquares, Objective
from analysis.record import Record

Curves = dict[str, tuple[np.ndarray, np.ndarray]]  # name -> PFLOP/s-days and losses, by size
Floor = float | str  # a number of nats that is pinned, "free" or "shared"
AT_ZERO, AT_LEAST = 1e-2, 1 - 1e-3  # of the least loss: a floor out here is no floor


@dataclass(frozen=True)
class FloorLaw:
    """L = E + A C^-alpha, C in PFLOP/s-days, L in nats.

    `reducible` is A C^-alpha at the reference compute `at`: unlike A, it hardly depends on alpha.
    """

    name: str
    E: float
    A: float
    alpha: float
    at: float
    reducible: float
    rmse: float  # of ln L

    def predict(self, pflops_days: np.ndarray) -> np.ndarray:
        """Loss in nats."""
        return self.E + self.A * np.asarray(pflops_days, float) ** -self.alpha

    def slopes(self, pflops_days: np.ndarray, with_floor: bool) -> np.ndarray:
        """Of ln L in ln reducible, alpha and, if asked for, ln E. [n_points, 2 or 3]."""
        C = np.asarray(pflops_days, float)
        of_floor = self.E / self.predict(C)
        columns = [1 - of_floor, (of_floor - 1) * np.log(C / self.at)]
        return np.stack([*columns, of_floor] if with_floor else columns, axis=1)

    def compute(self, loss: float) -> float:
        """PFLOP/s-days at which the law has this loss; inf at or below its floor."""
        if loss <= self.E:
            return float("inf")
        ln_C = -math.log((loss - self.E) / self.A) / self.alpha
        return math.exp(ln_C) if ln_C < 700 else math.inf


@dataclass(frozen=True)
class FloorFits(Record):
    """Laws fitted together."""

    laws: dict[str, FloorLaw]
    floor: Floor
    exponent: str  # "own" or "shared"
    convergence: Convergence
    dof: int  # points less parameters

    def multiplier(self, base: str, variant: str, C: float) -> float:
        """m(C) = C_base(L_variant(C)) / C.

        Raises:
          Refusal: "no-usable-slope": the baseline's loss does not fall; "below-floor": it never
            gets to the variant's loss; "out-of-range": not with any compute below 1e300.
        """
        law, loss = self.laws[base], float(self.laws[variant].predict(C))
        if law.alpha <= 0:
            raise Refusal(
                "no-usable-slope",
                f"The loss of '{base}' does not fall with compute (alpha {law.alpha:.3g}).",
            )
        if loss <= law.E:
            raise Refusal(
                "below-floor",
                f"'{variant}' has a loss of {loss:.4g} at {C:.3g} PFLOP/s-days, at or below the "
                f"floor of '{base}' ({law.E:.4g}), which no compute reaches.",
            )
        m = law.compute(loss) / C
        if not math.isfinite(m):
            raise Refusal(
                "out-of-range",
                f"No compute below 1e300 PFLOP/s-days brings '{base}' to {loss:.4g} nats.",
            )
        return m


def fit_floors(
    curves: Curves,
    floor: Floor = 0.0,
    exponent: str = "own",
    objective: Objective | None = None,
    at: float | None = None,
    weights: dict[str, np.ndarray] | None = None,
) -> FloorFits:
    """Fits all curves at once.

    Args:
      curves: name -> (C in PFLOP/s-days, loss in nats), one point a size.
      floor: nats that every curve has, 0 for none; "free": one a curve; "shared": one for all.
      exponent: "own" or "shared".
      objective: log least squares by default.
      at: reference compute; the geometric mean of all points by default.
      weights: name -> one weight a point, such as one over the variance of ln L; equal by default.

    Raises:
      Refusal: "bad-shape", "not-positive" or "no-compute-range" of a curve; "bad-option";
        "bad-weights"; "too-few-points": not one more than parameters;
        "floor-too-high": pinned at or above a loss; "floor-at-bound": a fitted one ran to zero or
        to the least loss, so the data do not determine it; "not-converged".
    """
    objective = objective or LeastSquares()
    _require_curves(curves)
    data = {k: (np.log(C), np.log(L)) for k, (C, L) in curves.items()}
    x = np.concatenate([x for x, _ in data.values()])
    y = np.concatenate([y for _, y in data.values()])
    ln_at = float(x.mean() if at is None else np.log(at))
    _check(floor, exponent, np.exp(y.min()))
    if isinstance(floor, str) and min(np.ptp(losses) for _, losses in data.values()) < 1e-9:
        raise Refusal("no-usable-slope", "Losses that do not change determine no floor.")
    owner = np.repeat(np.arange(len(data)), [len(x) for x, _ in data.values()])
    terms, layout = _terms(x - ln_at, owner, len(data), floor, exponent)
    dof = len(y) - len(terms.names)
    if dof < 1:
        raise Refusal(
            "too-few-points",
            f"{len(y)} points are given for {len(terms.names)} parameters "
            f"({', '.join(terms.names)}); at least {len(terms.names) + 1} are needed. Pin the "
            "floor, share it, or add sizes.",
        )
    what = f"L = E + A C^-alpha to {listed(data)}"
    starts = _starts(data, ln_at, floor, layout, len(terms.names))
    found = minimise(terms, y, objective, starts, _weights(weights, data))
    for (n_E, *_), (name, (_, own)) in zip(layout, data.items(), strict=True):
        if n_E is not None:
            require_inside(np.exp(found.theta[lowest(found), n_E]), np.exp(own.min()), name)
    theta, report = best(found, objective.name, what)
    residuals = terms.ln_loss(theta) - y
    laws = {}
    for i, name in enumerate(data):
        n_E, n_A, n_alpha = layout[i]
        E = float(np.exp(theta[n_E])) if n_E is not None else float(floor)
        reducible, alpha = float(np.exp(theta[n_A])), float(theta[n_alpha])
        A = float(np.exp(theta[n_A] + alpha * ln_at))
        rmse = float(np.sqrt(np.mean(residuals[owner == i] ** 2)))
        laws[name] = FloorLaw(name, E, A, alpha, float(np.exp(ln_at)), reducible, rmse)
    return FloorFits(laws, floor, exponent, report, dof)


def _require_curves(curves) -> None:
    if not curves:
        raise Refusal("too-few-points", "No curve is given.")
    for name, (C, L) in curves.items():
        C, L = np.asarray(C, float), np.asarray(L, float)
        if C.ndim != 1 or C.shape != L.shape:
            raise Refusal("bad-shape", f"'{name}' needs as many losses as computes, in one row.")
        if not (np.isfinite([C, L]).all() and (C > 0).all() and (L > 0).all()):
            raise Refusal("not-positive", f"'{name}' has a value that is not finite and above 0.")
        if len(np.unique(C)) < 2:
            raise Refusal("no-compute-range", f"All points of '{name}' have the same compute.")


def _weights(weights, data) -> np.ndarray | None:
    """[n_points] of mean 1."""
    if weights is None:
        return None
    of_curves = [np.asarray(weights.get(name, ()), float) for name in data]
    for name, w, (x, _) in zip(data, of_curves, data.values(), strict=True):
        if w.shape != x.shape or not (np.isfinite(w).all() and (w > 0).all()):
            raise Refusal(
                "bad-weights", f"'{name}' needs {len(x)} weights, each finite and above 0."
            )
    w = np.concatenate(of_curves)
    return w / w.mean()


def _check(floor: Floor, exponent: str, least: float) -> None:
    if exponent not in ("own", "shared"):
        raise Refusal("bad-option", f"exponent is {exponent!r}; it must be own or shared.")
    if isinstance(floor, str):
        if floor not in ("free", "shared"):
            raise Refusal("bad-option", f"floor is {floor!r}; give nats, free or shared.")
    elif not 0 <= floor < least:
        raise Refusal(
            "floor-too-high",
            f"The floor is pinned at {floor:g} nats, and the least loss is {least:.4g}; it must "
            "be 0 or more, and below every loss.",
        )


def require_inside(E: float, least: float, name: str) -> None:
    """Refuses a fitted floor that ran to zero or to the least loss."""
    side = "zero" if AT_ZERO * least > E else "the least loss" if AT_LEAST * least < E else None
    if side:
        raise Refusal(
            "floor-at-bound",
            f"The floor of '{name}' ran to {side} ({E:.3g} nats, least loss {least:.4g}): the "
            "points do not determine it. Pin it, share it between variants, or widen the range "
            "of compute.",
        )


def _terms(x, owner, n_curves: int, floor: Floor, exponent: str):
    """The design, and of each curve the columns of (ln E or None, ln A', alpha)."""
    columns = {}

    def column(name: str) -> int:
        return columns.setdefault(name, len(columns))

    layout = []
    for i in range(n_curves):
        fitted = {"free": f"E_{i}", "shared": "E"}.get(floor if isinstance(floor, str) else "")
        shared = exponent == "shared"
        layout.append((
            column(fitted) if fitted else None, column(f"A_{i}"),
            column("alpha" if shared else f"alpha_{i}"),
        ))  # fmt: skip
    Z, offset = np.zeros((2, len(x), len(columns))), np.zeros((2, len(x)))
    if not isinstance(floor, str):
        offset[0] = np.log(floor) if floor > 0 else -np.inf
    for i, (n_E, n_A, n_alpha) in enumerate(layout):
        mine = owner == i
        Z[1, mine, n_A] = 1
        Z[1, mine, n_alpha] = -x[mine]
        if n_E is not None:
            Z[0, mine, n_E] = 1
    return Terms(Z, offset, tuple(columns)), layout


def _starts(data, ln_at: float, floor: Floor, layout, n_parameters: int) -> np.ndarray:
    """Lines of ln (L - E) on ln C, flatter and steeper ones, for floors E below the least loss."""
    shares = (0.05, 0.3, 0.5, 0.7, 0.85, 0.95) if isinstance(floor, str) else (None,)
    least = min(y.min() for _, y in data.values())
    starts = []
    for share in shares:
        for tilt in (1.0, 0.5, 2.0):
            theta = np.zeros(n_parameters)
            for (x, y), (n_E, n_A, n_alpha) in zip(data.values(), layout, strict=True):
                E = floor if share is None else share * np.exp(least)
                z = np.log(np.exp(y) - E)
                slope = np.cov(x, z)[0, 1] / np.var(x, ddof=1)
                theta[n_alpha] = -slope * tilt
                theta[n_A] = z.mean() + slope * tilt * (ln_at - x.mean())
                if n_E is not None:
                    theta[n_E] = np.log(E)
            starts.append(theta)
    return np.array(starts)
