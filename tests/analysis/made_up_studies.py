"""Made-up studies with known truth."""

import numpy as np
import pandas as pd

from analysis import load

FLOP = 8.64e19


def study(
    multipliers: dict[str, float],
    *,
    alpha: float = 0.06,
    alphas: dict[str, float] | None = None,
    compute: np.ndarray | None = None,
    overhead: dict[str, float] | None = None,
    noise: np.ndarray | None = None,
    seeds: int = 1,
    A: float = 1.9,
) -> pd.DataFrame:
    """Loaded study: L = A (m C)^-alpha, with noise [variant, size, seed] added to ln L."""
    compute = np.geomspace(0.5, 8, 5) if compute is None else compute
    rows = []
    for i, (variant, m) in enumerate(multipliers.items()):
        exponent = (alphas or {}).get(variant, alpha)
        for j, c in enumerate(compute * (overhead or {}).get(variant, 1.0)):
            for seed in range(seeds):
                e = 0.0 if noise is None else noise[i, j, seed]
                loss = A * (m * c) ** -exponent * np.exp(e)
                rows.append((variant, f"S{j}", seed, loss, c * FLOP, "train_flops"))
    columns = ["variant", "size", "seed", "loss", "train_flops", "flops_convention"]
    return load(pd.DataFrame(rows, columns=columns))
