"""LIMe: attention reads learned mixes of the keys and values of all layers so far."""

from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from models.params import param
from models.residuals import io
from models.residuals.base import Residual, State, frozen
from models.residuals.dense import DenseHistory


class LIMe(DenseHistory):
    """[K; V]_h = sum_{j<=l, h'} route_l[h, (j, h')] [k; v]_{j, h'}; the stream is PreNorm's.

    k and v are each layer's own, before QK-norm and RoPE. Layer 0 keeps its own.
    """

    class Options(Residual.Options):
        """init: of the routes from earlier layers: random ("paper") or zero ("identity")."""

        init: Literal["paper", "identity"] = "paper"

    summary = "keys and values are static mixes of those of all layers so far"
    equation = "[K; V]ₕ = Σⱼₕ' Wₕ,ⱼₕ' [k; v]ⱼₕ' over layers j ≤ l and heads h'"
    source = "arXiv 2502.09245; initial values of github.com/corl-team/lime"
    notes = "Without a learning rate of the routes' own, which is ten times higher in the code."
    reduces_to_prenorm_at_init = False
    examples: ClassVar = {"": {}, "identity": {"init": "identity"}}

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        R, is_random = cfg.n_kv_heads, self.options(cfg).init == "paper"

        def route(key, shape, dtype):
            bound = (3 / shape[1]) ** 0.5 if is_random else 0.0
            earlier = jax.random.uniform(key, shape, dtype, -bound, bound)
            return earlier.at[:, -R:].set(jnp.eye(R, dtype=dtype))

        keys = jax.random.split(key, cfg.n_layers)
        self.route = nnx.List(
            [
                param(keys[i], (R, (i + 1) * R), route, axes=(None, None), group="vector")
                for i in range(1, cfg.n_layers)
            ]
        )

    def init(self, x_BTD):
        return State(history=(), carry=(x_BTD, None))

    def prepare(self, state, site):
        return state

    def read(self, state, site):
        return state.carry[0]

    def keys_values(self, state, site, k_BTKH, v_BTKH):
        layer, kv = site // 2, tuple(jnp.moveaxis(x, 2, 0) for x in (k_BTKH, v_BTKH))
        state = state._replace(carry=(state.carry[0], kv))
        if layer == 0:
            return k_BTKH, v_BTKH, state
        blocks = jnp.split(self.route[layer - 1][...], layer + 1, axis=1)
        keys, values = zip(*state.history, kv, strict=True)
        return _routed(blocks, keys), _routed(blocks, values), state

    def write(self, state, site, y_BTD):
        x_BTD, kv = state.carry
        return state._replace(carry=(x_BTD + y_BTD, kv))

    def end(self, state, segment):
        x_BTD, kv = state.carry
        return State(history=(*state.history, kv), carry=(x_BTD, None))

    def readout(self, state):
        return state.carry[0]

    @classmethod
    def reduces_to_prenorm(cls, cfg):
        return cls.options(cfg).init == "identity" or cfg.n_layers == 1

    @classmethod
    def extra_params(cls, cfg):
        return cfg.n_kv_heads**2 * sum(range(2, cfg.n_layers + 1))

    @classmethod
    def flops_per_token(cls, cfg):
        R = cfg.n_kv_heads
        products = 2 * R * sum(range(2, cfg.n_layers + 1))
        sums = sum(range(1, cfg.n_layers))
        return 2 * R * cfg.head_dim * (products + sums)

    @classmethod
    def io_per_token(cls, cfg):
        width = 2 * cfg.n_kv_heads * cfg.head_dim
        steps = io.standard(cfg.d_model) * cfg.n_sublayers
        for n in range(2, cfg.n_layers + 1):
            steps += io.mix(width, n)
        return io.total(steps) / cfg.n_sublayers

    @classmethod
    def saved_activations(cls, cfg):
        # PreNorm's; keys and values, which outlive their layer, are no [B, T, D].
        return cls.streams_kept(cfg)


def _routed(
    blocks: list[Float[Array, "K K"]], sources: tuple[Float[Array, "K B T H"], ...]
) -> Float[Array, "B T K H"]:
    """Heads mixed with all layers' heads, one small product a layer rather than a copy of all."""
    terms = [
        jnp.einsum("rk,kbth->rbth", frozen(block), source.astype(jnp.float32))
        for block, source in zip(blocks, sources, strict=True)
    ]
    return jnp.moveaxis(sum(terms[1:], terms[0]).astype(sources[0].dtype), 0, 2)
