# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A published table, re-analysed
#
# Table 2 of *Attention Residuals* (arXiv 2603.15031) has five sizes, one run a cell. How much compute is a residual variant worth, and how sure can five sizes make us?

# %%
from analysis import fit, gap, load, loss_vs_compute, multiplier, multipliers_by_size
from analysis.multiplier import multiplier_from_coefficients, rounding_box

df = load("attnres_table2")
df.pivot(index="size", columns="variant", values="loss").loc[df["size"].unique()]

# %% [markdown]
# Power laws $L = A\,C^{-\alpha}$ with 95% t intervals. Compute is $6ND$ without embeddings, plus attention: the paper does not say what it counts, and this comes close to its printed coefficients, such as $1.891\,C^{-0.057}$ for the baseline. `attnres_table2_6nd` has $6ND$ alone.

# %%
laws = fit(df).laws
for name, law in laws.items():
    print(
        f"{name:14} A = {law.A.value:.3f}  alpha = {law.alpha.value:.4f} "
        f"[{law.alpha.low:.4f}, {law.alpha.high:.4f}]"
    )
loss_vs_compute(df)

# %% [markdown]
# The residuals of the variants go up and down together, size by size. Pairing removes what they share: the multiplier below is the compute the baseline would need, relative to the variant, for the same loss.

# %%
for name in ("attnres_block", "attnres_full", "mhc_lite"):
    m = multiplier(df, name)
    print(f"{name:14} {m.shared.value:.2f}x [{m.shared.low:.2f}, {m.shared.high:.2f}]")
multipliers_by_size(df)

# %%
# The published 1.25x is a value of rounded coefficients; rounding alone allows this much:
printed = (1.891, 0.057, 1.870, 0.058)
multiplier_from_coefficients(*printed, C=5.6), rounding_box(*printed, C=5.6)

# %%
g = gap(df)
print(f"Block - Full: {g.pooled.value:.4f} nats [{g.pooled.low:.4f}, {g.pooled.high:.4f}]")
print(f"separated from 0: {g.separable}")
