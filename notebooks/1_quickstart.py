# %% [markdown]
# # From a study to a multiplier
#
# A study is a YAML file: sizes x variants x seeds, one data set, one recipe. This notebook reads one, shows what
# it would cost, and takes the results of `make demo`, which lie beside it in `notebooks/demo`, through the
# analysis. On the command line these are `scaling launch`, `fit`, `gap` and `plot`, and `report` for one page of it all.

# %%
from pathlib import Path

import pandas as pd

from scaling.cells import expand
from scaling.flops import count_params
from scaling.study import load_study

print(Path("configs/demo.yaml").read_text())

# %% [markdown]
# Every run of the grid, resolved: learning rates from the ladder's sweep, tokens from the baseline's parameters,
# so that all variants of a size see the same tokens in the same order.

# %%
cells = expand(load_study("configs/demo.yaml"), vocab_size=256)
pd.DataFrame(
    {
        "cell": [cell.key for cell in cells],
        "non-embedding": [count_params(cell.model)[1] for cell in cells],
        "tokens": [cell.tokens for cell in cells],
        "learning rate": [cell.train.learning_rate for cell in cells],
        "FLOPs": [f"{cell.train_flops:.2e}" for cell in cells],
    }
)

# %% [markdown]
# `scaling launch configs/demo.yaml --jobs 2` trains them in minutes. Its results, one row a run:

# %%
from analysis import fit, gap, load, loss_vs_compute, multiplier, robustness

df = load("notebooks/demo")
df[["variant", "size", "seed", "loss", "pflops_days", "tokens"]]

# %%
loss_vs_compute(df)

# %% [markdown]
# A law for each variant, and the compute that the baseline would need for the variant's loss. Both come with
# intervals; at this budget they contain 1, and no claim follows.

# %%
for name, law in fit(df).laws.items():
    a = law.alpha
    print(f"{name:14} alpha = {a.value:.3f} [{a.low:.3f}, {a.high:.3f}]")
for name in ("attnres_block", "attnres_full"):
    m = multiplier(df, name)
    told = "told from 1" if m.separable else "not told from 1"
    print(f"{name:14} {m.shared.value:.2f}x [{m.shared.low:.2f}, {m.shared.high:.2f}]: {told}")

# %% [markdown]
# What would move the number: a size left out, a robust objective, a floor of the loss.

# %%
r = robustness(df, "attnres_block")
print("without one size:", {size: round(m, 2) for size, m in r.left_out.items()})
for f in r.floors:
    m = f.multiplier
    print(f"E = {f.floor:6}", f"{m.value:.2f} [{m.low:.2f}, {m.high:.2f}]" if m else f.refused)

# %%
g = gap(df)
print(f"Block - Full: {g.pooled.value:.4f} nats [{g.pooled.low:.4f}, {g.pooled.high:.4f}]")

# %% [markdown]
# How much would it take? `scaling plan` simulates studies with the noise of this one.

# %%
from analysis.plan import designs, noise_of

compute = df[df["variant"] == "prenorm"].groupby("size")["train_flops"].mean().to_dict()
best = designs(compute, n_variants=3, noise=noise_of(df), multiplier=1.2)[0]
print(
    f"{best.n_runs} runs, {best.n_seeds} seeds a size: an interval of {best.low:.2f} to {best.high:.2f}, "
    f"told from 1 in {best.resolved:.0%} of studies"
)
