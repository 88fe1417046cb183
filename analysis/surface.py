"""L(N, D) = E + (A / N^alpha + B / D^beta)^k: the loss of a model of N parameters and D tokens.

k = 1, the additive law of Hoffmann et al., unless it is fitted (see `analysis.coupled`).
"""

from dataclasses import asdict, dataclass, replace

import numpy as np

from analysis.convergence import Convergence, best, lowest
from analysis.coupled import MOST, Coupled, Coupling, coupling, require_determined
from analysis.errors import Refusal
from analysis.floor import require_inside
from analysis.logsum import Terms, minimise
from analysis.objectives import Huber, Objective
from analysis.stats import Estimate, t_quantile
from analysis.surface_input import (
    require_floor,
    require_points,
    resampled,
    weights_of_mean_one,
)

MIN_POINTS = 8  # three more than the additive law has parameters
MIN_CONVERGED = 0.95


@dataclass(frozen=True)
class Surface:
    """A fit of Hoffmann et al., arXiv 2203.15556, Eq. 2 and 10, which has k = 1, or of any k."""

    E: float
    A: float
    B: float
    alpha: float
    beta: float
    convergence: Convergence
    n_points: int
    k: float = 1.0
    coupling: Coupling | None = None  # what the points say of k, where it is fitted
    standard_errors: dict[str, float] | None = None  # of a bootstrap over runs
    intervals: dict[str, Estimate] | None = None
    n_resamples: int = 0

    def predict(self, N: np.ndarray, D: np.ndarray) -> np.ndarray:
        """Loss in nats."""
        lack = self.A / np.asarray(N) ** self.alpha + self.B / np.asarray(D) ** self.beta
        return self.E + lack**self.k

    @property
    def exponent_of_N(self) -> float:
        """a in N*(C) ~ C^a, where C = 6 N D: beta / (alpha + beta), whatever k is."""
        return self.beta / (self.alpha + self.beta)

    @property
    def effective_alpha(self) -> float:
        """k alpha, with which L - E falls in N where tokens abound."""
        return self.k * self.alpha

    @property
    def effective_beta(self) -> float:
        """k beta, with which L - E falls in D where parameters abound."""
        return self.k * self.beta

    def to_dict(self) -> dict:
        """Plain numbers, strings, lists and dicts, at full precision."""
        derived = ("exponent_of_N", "effective_alpha", "effective_beta")
        return asdict(self) | {name: getattr(self, name) for name in derived}


def fit_surface(
    N: np.ndarray,
    D: np.ndarray,
    loss: np.ndarray,
    objective: Objective | None = None,
    *,
    tied: bool = False,
    coupled: bool = False,
    floor: float | str = "free",
    weights: np.ndarray | None = None,
    n_resamples: int = 0,
    clusters: np.ndarray | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Surface:
    """Fits ln L by a robust objective from a grid of starts.

    Args:
      N, D, loss: [n_points] parameters, tokens and nats; above 0.
      objective: in ln L; Huber(1e-3) by default, as in arXiv 2203.15556. The optimum that
        arXiv 2404.10102 prints is that of `LeastAbsolute`.
      tied: one exponent for N and D, with k = 1 or `coupled`.
      coupled: k is fitted too, from the optimum of k = 1 as well as from a grid.
      floor: nats that E is pinned at, 0 for none, or "free". The law of arXiv 2001.08361 is
        coupled and has none.
      weights: [n_points] of the objective's terms, such as 1 / variance of ln L between seeds; they
        are scaled to a mean of 1, and all 1 by default. A point of twice the weight counts as two;
        an objective's delta stays in units of ln L.
      n_resamples: of a bootstrap over points, or over whole `clusters` of them, for intervals; 0 or
        at least 100.
      clusters: [n_points] labels, such as of runs that share a trunk; at least five are distinct.

    Raises:
      Refusal: "too-few-points" (8, or 9 if coupled), "no-range" (N or D spans less than half a
        decade), "not-varied-apart", "bad-shape", "not-positive", "bad-weights", "floor-too-high",
        "bad-option", "too-few-clusters"; "not-converged", "no-usable-slope" (an exponent is not
        above 0), "floor-at-bound", "coupling-not-determined", "out-of-range" (of A or B);
        "bootstrap-failed": over 5% of the resamples did not converge, or do not determine k.
    """
    objective = objective or Huber(1e-3)
    N, D, loss = (np.asarray(x, float) for x in (N, D, loss))
    t_quantile(level, 1)  # refuses what is no level
    require_points(N, D, loss, MIN_POINTS + coupled)
    require_floor(floor, float(loss.min()))
    weights = weights_of_mean_one(weights, len(loss))
    drawn = resampled(np.random.default_rng(seed), n_resamples, clusters, len(loss))
    x, z, y = np.log(N), np.log(D), np.log(loss)
    terms = _terms(x - x.mean(), z - z.mean(), tied, floor)
    law, starts = terms, _starts(y, tied, floor)

    def named(theta) -> dict:
        return _named(theta, (x.mean(), z.mean()), tied, coupled, floor)

    found = minimise(law, y, objective, starts, weights)
    if coupled:
        additive = found.theta[lowest(found)]
        law, starts = Coupled(terms), _coupled_starts(additive, starts)
        found = minimise(law, y, objective, starts, weights)
        # A k or an E that runs off is no lack of convergence.
        require_determined(found.theta[lowest(found), -1])
        _require_law(named(found.theta[lowest(found)]), float(loss.min()), floor)
    theta, report = best(found, objective.name, "L(N, D)")
    whole = named(theta)
    _require_law(whole, float(loss.min()), floor)
    profile = coupling(terms, y, objective, weights, theta, additive, level) if coupled else None
    fitted = Surface(**whole, convergence=report, n_points=len(y), coupling=profile)
    if not n_resamples:
        return fitted
    again = minimise(
        law, y, objective, np.broadcast_to(theta, (n_resamples, len(theta))), weights * drawn
    )
    draws = named(again.theta.T)
    usable = again.converged & np.isfinite(draws["A"]) & np.isfinite(draws["B"])
    if coupled:
        usable &= np.abs(again.theta[:, -1]) < np.log(MOST)
    if usable.mean() < MIN_CONVERGED:
        raise Refusal(
            "bootstrap-failed",
            f"Of {n_resamples} resamples {(~usable).sum()} did not converge: the points "
            f"left in them do not determine {len(theta)} parameters. Add points.",
        )
    draws = {name: v[usable] if np.ndim(v) else v for name, v in draws.items()}
    return replace(fitted, n_resamples=int(usable.sum()), **_spread(whole, draws, level))


def _require_law(found: dict, least: float, floor: float | str) -> None:
    for name in ("alpha", "beta"):
        if found[name] <= 0:
            raise Refusal(
                "no-usable-slope",
                f"{name} is {found[name]:.3g}: the loss does not fall with "
                f"{'parameters' if name == 'alpha' else 'tokens'}.",
            )
    if floor == "free":
        require_inside(found["E"], least, "L(N, D)")
    if not np.isfinite([found["A"], found["B"]]).all():
        raise Refusal("out-of-range", "A or B, the terms at N = D = 1, has no name in floats.")


def _terms(x: np.ndarray, z: np.ndarray, tied: bool, floor: float | str) -> Terms:
    """theta = (ln A', alpha, ln B', beta, ln E), A' and B' at the mean ln N and ln D.

    Without beta where it is tied, and without ln E where that is pinned.
    """
    names = ["A", "alpha", "B"] + ["beta"] * (not tied) + ["E"] * (floor == "free")
    Z, offset = np.zeros((3, len(x), len(names))), np.zeros((3, len(x)))
    if floor == "free":
        Z[0, :, -1] = 1
    else:
        offset[0] = np.log(floor) if floor > 0 else -np.inf
    Z[1, :, 0], Z[1, :, 1] = 1, -x
    Z[2, :, 2], Z[2, :, 1 if tied else 3] = 1, -z
    return Terms(Z, offset, tuple(names))


def _starts(y: np.ndarray, tied: bool, floor: float | str) -> np.ndarray:
    """A grid over both exponents and, where it is free, the share of the floor in the least."""
    least, grid = np.exp(y.min()), []
    for E in (0.3 * least, 0.6 * least, 0.9 * least) if floor == "free" else (floor,):
        rest = np.log(np.exp(y.mean()) - E) - np.log(2)
        for alpha in (0.1, 0.25, 0.4, 0.7):
            for beta in (None,) if tied else (0.1, 0.25, 0.4, 0.7):
                fitted = (rest, alpha, rest, beta, np.log(E) if floor == "free" else None)
                grid.append([v for v in fitted if v is not None])
    return np.array(grid)


def _coupled_starts(additive: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The optimum of k = 1, and every other start of its grid, with a k of each."""
    starts = np.concatenate([[additive], starts[::2]])
    return np.concatenate([
        np.column_stack([starts, np.full(len(starts), np.log(k))]) for k in (0.5, 1.0, 2.0)
    ])  # fmt: skip


def _named(theta: np.ndarray, means, tied: bool, coupled: bool, floor: float | str) -> dict:
    """theta, [n_parameters, ...], as the coefficients of the law, at N = D = 1."""
    theta = list(theta)
    k = np.exp(theta.pop()) if coupled else 1.0
    ln_2 = (k - 1) * np.log(2)  # see `analysis.coupled`
    E = np.exp(theta.pop()) if floor == "free" else float(floor)
    ln_A, alpha, ln_B = theta[:3]
    beta = alpha if tied else theta[3]
    with np.errstate(over="ignore"):
        A = np.exp((ln_A + alpha * means[0] - ln_2) / k)
        B = np.exp((ln_B + beta * means[1] - ln_2) / k)
    named = {"E": E, "A": A, "B": B, "alpha": alpha / k, "beta": beta / k, "k": k}
    return {name: float(v) if np.ndim(v) == 0 else v for name, v in named.items()}


def _spread(whole: dict, draws: dict, level: float) -> dict:
    """Standard errors and intervals of what was fitted, and of the exponents made of it."""
    tails = (1 - level) / 2
    whole, draws = _with_exponents(whole), _with_exponents(draws)
    fitted = {name: v for name, v in draws.items() if np.ndim(v)}
    return {
        "standard_errors": {name: float(np.std(v, ddof=1)) for name, v in fitted.items()},
        "intervals": {
            name: Estimate(whole[name], *map(float, np.quantile(v, (tails, 1 - tails))), level)
            for name, v in fitted.items()
        },
    }


def _with_exponents(named: dict) -> dict:
    alpha, beta, k = (named[name] for name in ("alpha", "beta", "k"))
    made = {"exponent_of_N": beta / (alpha + beta)}
    return named | made | {"effective_alpha": k * alpha, "effective_beta": k * beta}
