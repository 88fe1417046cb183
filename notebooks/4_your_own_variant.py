# %% [markdown]
# # Your own residual connection
#
# One subclass in a file of your own. This one lets the stream fade a little before every addition, by a factor
# that it learns for each channel: $x' = \mathrm{fade}_l \odot x + f_l(x)$, with $\mathrm{fade}_l = 1$ at first.
# `docs/your-own-variant.md` explains each line.

# %%
import sys
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp())
sys.path.insert(0, str(folder))
(folder / "mine.py").write_text('''
from models.params import param
from models.residuals.arithmetic import added, scaled
from models.residuals.single_stream import SingleStream


class Fading(SingleStream):
    """x <- fade_l * x + f_l(x), a learned factor a channel."""

    summary = "the stream fades before every addition"
    equation = "x' = fade_l * x + f_l(x)"
    source = "mine"
    reduces_to_prenorm_at_init = True

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        shape, axes = (cfg.n_sublayers, cfg.d_model), ("sublayer", "features")
        self.fade = param(None, shape, 1.0, axes=axes, group="vector")

    def write(self, state, site, y_BTD):
        faded_BTD = scaled(self.fade[...], state.carry)
        return state._replace(carry=added(y_BTD, faded_BTD))

    @classmethod
    def extra_params(cls, cfg):
        return cfg.n_sublayers * cfg.d_model

    @classmethod
    def flops_per_token(cls, cfg):
        return cfg.n_sublayers * cfg.d_model
''')

# %% [markdown]
# As made, it has to be PreNorm: the same logits from the same seed.

# %%
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from models import ModelConfig, ResidualSpec, Transformer


def make(name: str) -> Transformer:
    cfg = ModelConfig(
        vocab_size=256, seq_len=16, d_model=16, n_layers=3, n_heads=2, n_kv_heads=2, d_ff=32, scan=False,
        residual=ResidualSpec(name=name),
    )
    return Transformer(cfg, jax.random.key(0))


tokens_BT = jnp.arange(32).reshape(2, 16)
mine, prenorm = make("mine:Fading"), make("prenorm")
np.abs(mine(tokens_BT) - prenorm(tokens_BT)).max()

# %% [markdown]
# What each sublayer reads: the share of every earlier output. Set the fading to 0.7, and what is early goes.

# %%
from models.mixing import mixing_matrix

graph, params, rest = nnx.split(mine, nnx.Param, ...)
faded = jax.tree.map_with_path(
    lambda path, x: 0.7 * x if "fade" in jax.tree_util.keystr(path) else x, params
)
np.set_printoptions(precision=2, suppress=True)
print(np.asarray(mixing_matrix(nnx.merge(graph, faded, rest), tokens_BT)))

# %% [markdown]
# Whether it is causal, shardable, as costly as it says, and more is the contract's to check, in half a minute:
# `scaling check-variant mine:Fading`. A study names it like any other, and `scaling launch` trains it:

# %%
import yaml

study = yaml.safe_load(Path("configs/demo.yaml").read_text())
study |= {"name": "fading", "ladder": str(Path("configs/ladders/demo.yaml").absolute())}
study["variants"] = {"prenorm": None, "fading": {"residual": "mine:Fading"}}
(folder / "fading.yaml").write_text(yaml.safe_dump(study, sort_keys=False))

from scaling.cells import expand
from scaling.study import load_study

for cell in expand(load_study(folder / "fading.yaml"), 256, sizes=["d20"]):
    print(f"{cell.key:16} {cell.tokens:,} tokens, {cell.train_flops:.3e} FLOPs")
