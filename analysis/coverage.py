"""How often the intervals hold: 2,000 made-up studies whose laws are known.

`python -m analysis.coverage` draws laws, noise, sizes and seeds at random, and counts how often the
95% intervals of alpha and of the multiplier contain the truth, beside those of the naive analysis:
two separate lines through all runs, their errors taken as independent. Stored in coverage.json.
"""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.fit import fit
from analysis.multiplier import multiplier
from analysis.stats import line, t_quantile
from analysis.table import load

OUT = Path(__file__).parent / "coverage.json"
N_STUDIES, LEVEL = 2000, 0.95


def main() -> None:
    """Simulates, prints and stores."""
    first = coverage(150, seed=0)
    found = coverage(N_STUDIES, seed=0)
    found["first_studies"] = {key: first[key] for key in ("n_studies", "coverage")}  # for a test
    OUT.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))


def coverage(n_studies: int, seed: int) -> dict:
    """Shares of the studies whose intervals contain the truth, with standard errors."""
    rng = np.random.default_rng(seed)
    held: dict[str, list[bool]] = {"alpha": [], "multiplier": [], "naive alpha": [],
                                   "naive multiplier": []}  # fmt: skip
    widths: dict[str, list[float]] = {"multiplier": [], "naive multiplier": []}
    for _ in range(n_studies):
        df, alpha, m = _study(rng)
        held["alpha"].append(fit(df).laws["prenorm"].alpha.contains(alpha))
        paired = multiplier(df, "variant").shared
        held["multiplier"].append(paired.contains(m))
        widths["multiplier"].append(math.log(paired.high / paired.low))
        (a_low, a_high), (low, high) = _naive(df)
        held["naive alpha"].append(a_low <= alpha <= a_high)
        held["naive multiplier"].append(low <= math.log(m) <= high)
        widths["naive multiplier"].append(high - low)
    shares = {name: float(np.mean(values)) for name, values in held.items()}
    return {
        "n_studies": n_studies,
        "seed": seed,
        "level": LEVEL,
        "coverage": shares,
        "standard_error": {k: math.sqrt(p * (1 - p) / n_studies) for k, p in shares.items()},
        "median_width_of_ln_multiplier": {k: float(np.median(v)) for k, v in widths.items()},
    }


def _study(rng: np.random.Generator) -> tuple[pd.DataFrame, float, float]:
    """L = A (m C)^-alpha with noise of each run, and noise that a size's variants share."""
    n_sizes, n_seeds = int(rng.integers(4, 8)), int(rng.integers(1, 4))
    alpha, m, A = rng.uniform(0.04, 0.15), math.exp(rng.uniform(-0.1, 0.4)), rng.uniform(1.5, 4)
    compute = np.geomspace(0.1, 0.1 * 10 ** rng.uniform(1, 2.5), n_sizes)
    own, size, by_seed = (math.exp(rng.uniform(*np.log((1e-3, 4e-3)))) for _ in range(3))
    shape = (n_sizes, n_seeds)
    common = size * rng.normal(size=(n_sizes, 1)) + by_seed * rng.normal(size=shape)
    rows = []
    for name, factor in (("prenorm", 1.0), ("variant", m)):
        ln_L = math.log(A) - alpha * np.log(factor * compute)[:, None] + common
        ln_L = ln_L + own * rng.normal(size=shape)
        rows += [
            (name, f"S{i}", s, math.exp(ln_L[i, s]), compute[i])
            for i in range(n_sizes)
            for s in range(n_seeds)
        ]
    columns = ["variant", "size", "seed", "loss", "pflops_days"]
    return load(pd.DataFrame(rows, columns=columns)), alpha, m


def _naive(df: pd.DataFrame) -> tuple[tuple[float, float], tuple[float, float]]:
    """Intervals of alpha and of ln m at the middle of the range: every run a point, no pairs."""
    x = np.log(df["pflops_days"].to_numpy())
    y, mine = np.log(df["loss"].to_numpy()), (df["variant"] == "variant").to_numpy()
    b, v = line(x[~mine], y[~mine]), line(x[mine], y[mine])
    at = x.mean()
    (y_b, se_b), (y_v, se_v) = b.at(at), v.at(at)
    half = t_quantile(LEVEL, b.dof) * math.sqrt(b.cov[1, 1])
    ln_m = float(y_b - y_v) / b.alpha
    error = math.hypot(se_b, se_v) / b.alpha
    error = math.hypot(error, ln_m * math.sqrt(b.cov[1, 1]) / b.alpha)
    half_m = t_quantile(LEVEL, b.dof + v.dof) * error
    return (b.alpha - half, b.alpha + half), (ln_m - half_m, ln_m + half_m)


if __name__ == "__main__":
    main()
