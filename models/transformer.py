"""The decoder-only Transformer, with its residual connection plugged in."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from models.config import ModelConfig
from models.depth import Observe, observed_walk, walk
from models.layers import STREAM, Layer, RMSNorm
from models.loss import HEAD, nll, nll_sum
from models.params import fan_in, param
from models.residuals import Residual, find
from models.sharding import constrain

EMBEDDING_STD = 0.02
RESIDUAL_STREAM = 0xD  # keeps the residual's draws apart from the shared parameters'


class Transformer(nnx.Module):
    """tokens -> embedding -> sublayers joined by `cfg.residual` -> RMSNorm -> head.

    All parameters but the residual's own depend on `key` and the sizes only (and on the factors
    of `init_scales`), so that variants of one seed start from identical shared weights.
    """

    def __init__(self, cfg: ModelConfig, key: jax.Array, with_residual: bool = True):
        """Without the residual connection it is good for the shared parameters only."""
        cfg = cfg.on_platform(jax.default_backend())
        k_embed, k_layers, k_head = jax.random.split(key, 3)
        V, D = cfg.vocab_size, cfg.d_model
        normal = jax.nn.initializers.normal(EMBEDDING_STD)
        self.embed = param(k_embed, (V, D), normal, axes=("vocab", "embed"), group="embedding")
        kind = find(cfg.residual.name)
        make = partial(Layer, cfg, input_norm=kind.input_norm, init_scales=kind.init_scales(cfg))
        # One stacked Layer, [n_layers, ...] in every leaf: depth is data, not code.
        self.layers = jax.vmap(make)(jax.random.split(k_layers, cfg.n_layers))
        self.final_norm = RMSNorm(D, cfg.norm_eps) if kind.final_norm else None
        if not cfg.tie_embeddings:
            self.head = param(k_head, (D, V), fan_in(), axes=HEAD, group="embedding")
        self.residual = make_residual(cfg, key) if with_residual else None
        self.cfg = cfg

    def hidden(self, tokens_BT: Int[Array, "B T"]) -> Float[Array, "B T D"]:
        """What the head sees: the readout, after the final norm where there is one."""
        return self._normed(walk(self.residual, self._embedded(tokens_BT), self.layers))

    def _embedded(self, tokens_BT) -> Float[Array, "B T D"]:
        return constrain(self.embed[tokens_BT].astype(self.cfg.dtype), *STREAM)

    def _normed(self, x_BTD) -> Float[Array, "B T D"]:
        return x_BTD if self.final_norm is None else self.final_norm(x_BTD)

    @property
    def head_DV(self) -> Float[Array, "D V"]:
        """The output matrix, in fp32."""
        return self.embed[...].T if self.cfg.tie_embeddings else self.head[...]

    def __call__(self, tokens_BT: Int[Array, "B T"]) -> Float[Array, "B T V"]:
        """Next-token logits, in fp32."""
        x_BTD = self.hidden(tokens_BT)
        head_DV = self.head_DV.astype(self.cfg.dtype)
        return jnp.einsum("btd,dv->btv", x_BTD, head_DV, preferred_element_type=jnp.float32)

    def nll(self, tokens_BT: Int[Array, "B T+1"]) -> Float[Array, "B T"]:
        """Loss of each token after the first, in nats; see `models.loss`."""
        return nll(self.hidden(tokens_BT[:, :-1]), self.head_DV, tokens_BT[:, 1:])

    def nll_sum(
        self, tokens_BT: Int[Array, "B T+1"], weights_BT: Float[Array, "B T"]
    ) -> Float[Array, ""]:
        """Their weighted sum, for training."""
        x_BTD = self.hidden(tokens_BT[:, :-1])
        return nll_sum(x_BTD, self.head_DV, tokens_BT[:, 1:], weights_BT)

    def observed_nll_sum(
        self,
        tokens_BT: Int[Array, "B T+1"],
        weights_BT: Float[Array, "B T"],
        observe: Observe,
    ) -> tuple[Float[Array, ""], list]:
        """The same, and what `observe` has seen; see `models.depth.observed_walk`."""
        x_BTD = self._embedded(tokens_BT[:, :-1])
        x_BTD, seen = observed_walk(self.residual, x_BTD, self.layers, observe)
        total = nll_sum(self._normed(x_BTD), self.head_DV, tokens_BT[:, 1:], weights_BT)
        return total, seen


def make_residual(cfg: ModelConfig, key: jax.Array) -> Residual:
    """The residual connection of a model made from `key`, with its own parameters."""
    cfg = cfg.on_platform(jax.default_backend())
    return find(cfg.residual.name)(cfg, jax.random.fold_in(key, RESIDUAL_STREAM))
