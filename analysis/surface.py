"""L(N, D) = E + A / N^alpha + B / D^beta: the loss of a model of N parameters and D tokens."""

from dataclasses import asdict, dataclass, replace

import numpy as np

from analysis.apart import varied_apart
from analysis.convergence import Convergence, best
from analysis.errors import Refusal
from analysis.floor import require_inside
from analysis.logsum import Terms, minimise
from analysis.objectives import Huber, Objective
from analysis.stats import Estimate, t_quantile

MIN_POINTS = 8  # three more than there are parameters
MIN_DECADES = 0.5
MIN_CONVERGED = 0.95


@dataclass(frozen=True)
class Surface:
    """The parametric fit of Hoffmann et al., arXiv 2203.15556, Eq. 2 and 10."""

    E: float
    A: float
    B: float
    alpha: float
    beta: float
    convergence: Convergence
    n_points: int
    standard_errors: dict[str, float] | None = None  # of a bootstrap over runs
    intervals: dict[str, Estimate] | None = None
    n_resamples: int = 0

    def predict(self, N: np.ndarray, D: np.ndarray) -> np.ndarray:
        """Loss in nats."""
        return self.E + self.A / np.asarray(N) ** self.alpha + self.B / np.asarray(D) ** self.beta

    @property
    def exponent_of_N(self) -> float:
        """a in N*(C) ~ C^a, where C = 6 N D: beta / (alpha + beta)."""
        return self.beta / (self.alpha + self.beta)

    def to_dict(self) -> dict:
        """Plain numbers, strings, lists and dicts, at full precision."""
        return asdict(self) | {"exponent_of_N": self.exponent_of_N}


def fit_surface(
    N: np.ndarray,
    D: np.ndarray,
    loss: np.ndarray,
    objective: Objective | None = None,
    *,
    tied: bool = False,
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
      tied: one exponent for N and D.
      n_resamples: of a bootstrap over points, or over whole `clusters` of them, for intervals.
      clusters: [n_points] labels, such as of runs that share a trunk.

    Raises:
      Refusal: "too-few-points", "no-range" (N or D spans less than half a decade),
        "not-varied-apart", "not-positive", "not-converged", "no-usable-slope" (an exponent is not
        above 0), "floor-at-bound"; "bootstrap-failed": over 5% of the resamples did not converge.
    """
    objective = objective or Huber(1e-3)
    N, D, loss = (np.asarray(x, float) for x in (N, D, loss))
    t_quantile(level, 1)  # refuses what is no level
    _require(N, D, loss)
    x, z, y = np.log(N), np.log(D), np.log(loss)
    means = x.mean(), z.mean()
    terms = _terms(x - means[0], z - means[1], tied)
    theta, report = best(minimise(terms, y, objective, _starts(y, tied)), objective.name, "L(N, D)")
    whole = _named(theta, means, tied)
    _require_law(whole, float(loss.min()))
    fitted = Surface(**whole, convergence=report, n_points=len(y))
    if not n_resamples:
        return fitted
    weights = _resampled(np.random.default_rng(seed), n_resamples, clusters, len(y))
    again = minimise(
        terms, y, objective, np.broadcast_to(theta, (n_resamples, len(theta))), weights
    )
    if again.converged.mean() < MIN_CONVERGED:
        raise Refusal(
            "bootstrap-failed",
            f"Of {n_resamples} resamples {(~again.converged).sum()} did not converge: the points "
            "left in them do not determine five parameters. Add points.",
        )
    draws = _named(again.theta[again.converged].T, means, tied)
    tails = (1 - level) / 2
    return replace(
        fitted,
        n_resamples=int(again.converged.sum()),
        standard_errors={k: float(np.std(v, ddof=1)) for k, v in draws.items()},
        intervals={
            k: Estimate(whole[k], *map(float, np.quantile(v, (tails, 1 - tails))), level)
            for k, v in draws.items()
        },
    )


def _require(N, D, loss) -> None:
    if not (N.ndim == 1 and N.shape == D.shape == loss.shape):
        raise Refusal("bad-shape", "N, D and loss must be three rows of one length.")
    for name, values in (("N", N), ("D", D), ("loss", loss)):
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise Refusal("not-positive", f"{name} must be finite and above 0 at every point.")
    if len(loss) < MIN_POINTS:
        raise Refusal(
            "too-few-points",
            f"L(N, D) has five parameters and is given {len(loss)} points; at least {MIN_POINTS} "
            "are needed.",
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


def _require_law(found: dict, least: float) -> None:
    for name in ("alpha", "beta"):
        if found[name] <= 0:
            raise Refusal(
                "no-usable-slope",
                f"{name} is {found[name]:.3g}: the loss does not fall with "
                f"{'parameters' if name == 'alpha' else 'tokens'}.",
            )
    require_inside(found["E"], least, "L(N, D)")


def _terms(x: np.ndarray, z: np.ndarray, tied: bool) -> Terms:
    """theta = (ln E, ln A', alpha, ln B', beta), A' and B' at the mean ln N and ln D."""
    one, zero = np.ones_like(x), np.zeros_like(x)
    n_beta = 2 if tied else 4
    Z = np.zeros((3, len(x), 4 if tied else 5))
    Z[0, :, 0], Z[1, :, 1], Z[2, :, 3] = one, one, one
    Z[1, :, 2] = -x
    Z[2, :, n_beta] = -z
    names = ("E", "A", "alpha", "B") if tied else ("E", "A", "alpha", "B", "beta")
    return Terms(Z, np.stack([zero] * 3), names)


def _starts(y: np.ndarray, tied: bool) -> np.ndarray:
    """A grid over both exponents and the share of the floor in the least loss."""
    least, grid = y.min(), []
    for floor in (0.3, 0.6, 0.9):
        rest = np.log(np.exp(y.mean()) - floor * np.exp(least)) - np.log(2)
        for alpha in (0.1, 0.25, 0.4, 0.7):
            for beta in (alpha,) if tied else (0.1, 0.25, 0.4, 0.7):
                grid.append([np.log(floor) + least, rest, alpha, rest, beta][: 4 if tied else 5])
    return np.array(grid)


def _named(theta: np.ndarray, means, tied: bool) -> dict:
    """theta at the mean ln N and ln D as the coefficients of the law."""
    ln_E, ln_A, alpha, ln_B = theta[:4]
    beta = alpha if tied else theta[4]
    named = {
        "E": np.exp(ln_E),
        "A": np.exp(ln_A + alpha * means[0]),
        "B": np.exp(ln_B + beta * means[1]),
        "alpha": alpha,
        "beta": beta,
    }
    return {k: float(v) if np.ndim(v) == 0 else v for k, v in named.items()}


def _resampled(rng, n_resamples: int, clusters, n_points: int) -> np.ndarray:
    """[n_resamples, n_points]: how often each point is drawn."""
    if clusters is None:
        return rng.multinomial(n_points, np.full(n_points, 1 / n_points), n_resamples).astype(float)
    _, labels = np.unique(np.asarray(clusters), return_inverse=True)
    n = labels.max() + 1
    return rng.multinomial(n, np.full(n, 1 / n), n_resamples)[:, labels].astype(float)
