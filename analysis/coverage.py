"""How often the intervals hold: 2,000 made-up studies whose laws are known.

`python -m analysis.coverage` draws laws, noise, sizes and seeds at random, and counts how often the
95% intervals of alpha and of the multiplier contain the truth, beside those of the naive analysis:
two separate lines through all runs, their errors taken as independent; and again in worlds whose
loss has a floor, where the power law is wrong. Stored in coverage.json.
"""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.cells import size_means
from analysis.errors import Refusal
from analysis.fit import fit
from analysis.floor import fit_floors
from analysis.floor_multiplier import under_shared_floor
from analysis.floor_profile import exponent_interval, floor_interval
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
    found["with_floors"] = coverage_with_floors(N_STUDIES, seed=0)
    found["with_floors"]["first_studies"] = coverage_with_floors(20, seed=0)["coverage"]
    OUT.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))


def coverage(n_studies: int, seed: int) -> dict:
    """Shares of the studies whose intervals contain the truth, with standard errors."""
    rng = np.random.default_rng(seed)
    held: dict[str, list[bool]] = {"alpha": [], "multiplier": [], "naive alpha": [],
                                   "naive multiplier": []}  # fmt: skip
    widths: dict[str, list[float]] = {"multiplier": [], "naive multiplier": []}
    crossing: list[bool] = []
    for _ in range(n_studies):
        df, alpha, m = _study(rng)
        held["alpha"].append(fit(df).laws["prenorm"].alpha.contains(alpha))
        # Named, so that curves that seem to cross count too.
        found = multiplier(df, "variant", at=df["pflops_days"].max())
        crossing.append(found.crosses_at is not None)
        paired = found.shared
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
        "share_that_seems_to_cross": float(np.mean(crossing)),  # none does
        "median_width_of_ln_multiplier": {k: float(np.median(v)) for k, v in widths.items()},
    }


def coverage_with_floors(n_studies: int, seed: int) -> dict:
    """The same in worlds L = E + A (m C)^-alpha, whose multiplier is m at every compute.

    "multiplier" is that of the power law, which is wrong here; the others know that there is a
    floor: of alpha and E from the baseline alone, and of the multiplier under one floor for both.
    A study in which a floor is refused counts for what is left of it.
    """
    rng = np.random.default_rng(seed)
    held: dict[str, list[bool]] = {"multiplier": [], "multiplier, shared floor": [], "E": [],
                                   "alpha": [], "alpha of a power law": []}  # fmt: skip
    refused = {"a floor at its bound": 0, "a floor not told from zero": 0}
    for _ in range(n_studies):
        n_sizes, n_seeds = int(rng.integers(5, 10)), int(rng.integers(1, 4))
        alpha, A, share = rng.uniform(0.1, 0.4), rng.uniform(0.5, 2), rng.uniform(0.3, 0.8)
        df, m, E = _draw(rng, n_sizes, n_seeds, alpha, A, share)
        power = multiplier(df, "variant", at=df["pflops_days"].max())
        held["multiplier"].append(power.shared.contains(m))
        held["alpha of a power law"].append(fit(df).laws["prenorm"].alpha.contains(alpha))
        means = {v: size_means(df, v) for v in ("prenorm", "variant")}
        curves = {
            v: (np.exp(x["ln_compute"].to_numpy()), np.exp(x["ln_loss"].to_numpy()))
            for v, x in means.items()
        }
        try:
            both = under_shared_floor(curves, "prenorm", "variant", curves["variant"][0][-1])
            held["multiplier, shared floor"].append(both.multiplier.contains(m))
            alone = floor_interval({"prenorm": curves["prenorm"]})
            held["E"].append(alone.contains(E))
        except Refusal as reason:
            if reason.code != "floor-at-bound":
                raise
            refused["a floor at its bound"] += 1
            continue
        if alone.low == 0:
            refused["a floor not told from zero"] += 1
            continue
        law = fit_floors({"prenorm": curves["prenorm"]}, "free").laws["prenorm"]
        found = exponent_interval(law, curves["prenorm"], with_floor=True)
        held["alpha"].append(found.contains(alpha))
    shares = {name: float(np.mean(values)) for name, values in held.items()}
    n = {name: len(values) for name, values in held.items()}
    return {
        "n_studies": n_studies,
        "seed": seed,
        "coverage": shares,
        "of_studies": n,
        "standard_error": {k: math.sqrt(p * (1 - p) / n[k]) for k, p in shares.items()},
        "refused": refused,
    }


def _study(rng: np.random.Generator) -> tuple[pd.DataFrame, float, float]:
    """L = A (m C)^-alpha."""
    n_sizes, n_seeds = int(rng.integers(4, 8)), int(rng.integers(1, 4))
    alpha, A = rng.uniform(0.04, 0.15), rng.uniform(1.5, 4)
    df, m, _ = _draw(rng, n_sizes, n_seeds, alpha, A, 0.0)
    return df, alpha, m


def _draw(
    rng: np.random.Generator, n_sizes: int, n_seeds: int, alpha: float, A: float, share: float
) -> tuple[pd.DataFrame, float, float]:
    """A study with noise of each run, and noise that a size's variants share; its m and E.

    E is this share of the baseline's least loss.
    """
    m = math.exp(rng.uniform(-0.1, 0.4))
    compute = np.geomspace(0.1, 0.1 * 10 ** rng.uniform(1, 2.5), n_sizes)
    E = A * compute[-1] ** -alpha * share / (1 - share)
    own, size, by_seed = (math.exp(rng.uniform(*np.log((1e-3, 4e-3)))) for _ in range(3))
    shape = (n_sizes, n_seeds)
    common = size * rng.normal(size=(n_sizes, 1)) + by_seed * rng.normal(size=shape)
    rows = []
    for name, factor in (("prenorm", 1.0), ("variant", m)):
        ln_L = np.log(E + A * (factor * compute) ** -alpha)[:, None] + common
        ln_L = ln_L + own * rng.normal(size=shape)
        rows += [
            (name, f"S{i}", s, math.exp(ln_L[i, s]), compute[i])
            for i in range(n_sizes)
            for s in range(n_seeds)
        ]
    columns = ["variant", "size", "seed", "loss", "pflops_days"]
    return load(pd.DataFrame(rows, columns=columns)), m, E


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
