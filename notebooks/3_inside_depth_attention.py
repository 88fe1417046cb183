# %% [markdown]
# # Looking inside depth attention
#
# Every run records now and then what goes on inside it (`dynamics.parquet`), and `scaling ablate-sources`
# measures what each source of a read is worth (`ablation.parquet`, here by both of its modes). Both are small files that need no JAX; those of
# the largest size of `make demo` lie in `notebooks/demo`. One seed and minutes of training: what follows shows how
# to look, not what is true of large models.

# %%
from analysis import (
    alpha_heatmaps, gradient_by_depth, input_by_depth, load_ablation, load_dynamics, output_by_depth,
)

dynamics, ablation = load_dynamics("notebooks/demo"), load_ablation("notebooks/demo")
dynamics.groupby("metric")["value"].describe()[["count", "min", "50%", "max"]].round(4)

# %% [markdown]
# ## Magnitudes
#
# The AttnRes paper argues (Fig. 5) that under PreNorm later sublayers have to put out more and more to be heard in
# a growing sum, and that a softmax over depth bounds them. Output magnitude and gradient by depth, at the end:

# %%
output_by_depth(dynamics)

# %%
gradient_by_depth(dynamics)

# %% [markdown]
# What a sublayer *reads* tells more: the sum grows with depth, the weighted mean does not.

# %%
input_by_depth(dynamics)

# %% [markdown]
# ## Weights over depth
#
# The mean weight of each source (columns) in each read (rows), and beside it how much worse the loss becomes
# when that source is removed from that read.

# %%
alpha_heatmaps(dynamics, ablation)

# %% [markdown]
# Queries start at zero, so that at first every read is the plain mean: each of its $n$ sources has weight $1/n$,
# and the entropy is $\ln n$. How far has training come from there? The share of $\ln n$ that is left,
# the weight on the embedding, and the norm of the query, by depth:

# %%
import numpy as np

at_end = dynamics[dynamics["step"] == dynamics.groupby(["variant", "size"])["step"].transform("max")]
largest = at_end[at_end["size"] == ablation["size"].iloc[-1]]
blocks = largest[largest["variant"] == "attnres_block"].set_index(["metric", "sublayer"])["value"]
n_sources = largest[(largest["variant"] == "attnres_block") & (largest["metric"] == "alpha")].groupby("sublayer").size()
table = blocks.loc[["alpha_entropy", "embedding_weight", "query_norm"]].unstack("metric").loc[1:]
table["alpha_entropy"] /= np.log(n_sources.loc[1:])
table.rename(columns={"alpha_entropy": "entropy / ln n"}).round(3)

# %% [markdown]
# ## Weight is not importance
#
# If the weight of a source said what it is worth, the two maps would rank the sources of a read alike: a rank
# correlation of one. Within reads of three sources or more (across reads, weights fall with the number of sources
# anyway):

# %%
keys = ["variant", "size", "sublayer", "source"]
single = ablation[(ablation["sublayer"] >= 0) & (ablation["mode"] == "remove")]
both = single.merge(largest.loc[largest["metric"] == "alpha", [*keys, "value"]], on=keys)
for variant, rows in both.groupby("variant"):
    reads = [r for _, r in rows.groupby("sublayer") if len(r) > 2]
    ranks = [r["value"].corr(r["delta"], method="spearman") for r in reads]
    low, middle, high = np.quantile(ranks, [0.25, 0.5, 0.75])
    print(f"{variant:14} rank correlation {middle:+.2f} (quartiles {low:+.2f}, {high:+.2f}; {len(reads)} reads)")

# %% [markdown]
# In part it does, here: the weights rank sources better than chance and far from perfectly. Neither map replaces
# the other.
#
# The sources that a model cannot do without, removed from all its reads at once:

# %%
everywhere = ablation[(ablation["sublayer"] == -1) & (ablation["site"] == "")]
everywhere.pivot_table(index="source", columns=["variant", "mode"], values="delta").round(3)

# %% [markdown]
# ## A model of your own
#
# The measurements are functions of any model with any residual connection. Here one with Full AttnRes, as made:
# the weights are $1/n$ to the last digit, as they have to be with a query of zero.

# %%
import jax
import jax.numpy as jnp

from models import ModelConfig, ResidualSpec, Transformer
from models.measures import of_sublayer

cfg = ModelConfig(
    vocab_size=256, seq_len=16, d_model=16, n_layers=2, n_heads=2, n_kv_heads=2, d_ff=32,
    residual=ResidualSpec(name="attnres_full"),
)
tokens_BT = jnp.arange(34).reshape(2, 17)


@jax.jit
def look(key):
    return Transformer(cfg, key).observed_nll_sum(tokens_BT, jnp.ones((2, 16)), of_sublayer)


loss, seen = look(jax.random.key(0))
for sublayer, found in enumerate(seen):
    n = sublayer + 1
    np.testing.assert_allclose(found["alpha"], np.full(n, 1 / n), rtol=1e-6)
    print(sublayer, "reads", np.asarray(found["alpha"]).round(3), f"rms {found['input_rms']:.4f}")
