"""Made-up studies with known truth, and the one published table under a second convention."""

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


def table2_with_attention() -> pd.DataFrame:
    """AttnRes Table 2 with causal attention counted: MLA every 4th block, KDA in the others.

    Forward FLOPs a token of MLA: T H (192 + 128); of KDA: H (6 d^2 + 3 c d + c^2), d 128, chunk 64.
    """
    df = load("attnres_table2")
    N, D, L, H = (df[c] for c in ("n_params_non_embedding", "tokens", "n_blocks", "n_heads"))
    mla = 8192 * H * (192 + 128) * L / 4
    kda = H * (6 * 128**2 + 3 * 64 * 128 + 64**2) * L * 3 / 4
    flops = D * (6.0 * N + 3 * (mla + kda))
    df = df.drop(columns="pflops_days").assign(train_flops=flops, flops_convention="attention")
    return load(df)
