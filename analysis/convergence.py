"""What an optimiser found, from how many starts, and whether it may be called a fit."""

from dataclasses import asdict, dataclass

import numpy as np

from analysis.errors import Refusal
from analysis.logsum import Solutions

EXACT = 1e-18  # a sum of squares as small as this is rounding
SAME = 1e-6  # of the objective, relative: starts that ended as low as the best


@dataclass(frozen=True)
class Convergence:
    """How a multi-start fit went.

    There are no active bounds to report: nothing is bounded, for coefficients are fitted as logs.
    """

    objective: float  # sum over points, at the best
    objective_name: str
    n_starts: int
    share_at_best: float  # of the starts, within 1e-6 of the best objective
    gradient: float  # largest component at the best, relative to its sum without signs

    def to_dict(self) -> dict:
        """Plain numbers, strings and lists."""
        return asdict(self)


def lowest(found: Solutions) -> int:
    """The index of the solution with the least objective."""
    return int(np.argmin(_finite(found.objective)))


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.inf)


def best(found: Solutions, objective_name: str, what: str) -> tuple[np.ndarray, Convergence]:
    """The lowest of the solutions, and how many of the others agree with it.

    Raises:
      Refusal: "not-converged": no start reached a point where the gradient vanishes.
    """
    values, least = _finite(found.objective), lowest(found)
    same = values <= values[least] * (1 + SAME) + EXACT
    settled = np.flatnonzero(same & found.converged)
    if not (np.isfinite(values[least]) and len(settled)):
        raise Refusal(
            "not-converged",
            f"The fit of {what} did not converge where its objective is least (relative gradient "
            f"{found.gradient[least]:.1e}, best of {len(values)} starts), so it is no fit. The "
            "data may not determine it; a wider range of sizes would.",
        )
    i = int(settled[np.argmin(values[settled])])
    report = Convergence(
        float(values[i]), objective_name, len(values), float(same.mean()),
        float(found.gradient[i]),
    )  # fmt: skip
    return found.theta[i], report
