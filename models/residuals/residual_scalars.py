"""Residual scalars: every layer begins with a learned mix of the stream and the embedding."""

from typing import ClassVar, Literal

import jax.numpy as jnp

from models.params import param
from models.residuals import io
from models.residuals.arithmetic import rms_norm, weighted_sum
from models.residuals.base import Residual, State

# At the first layer, and by how much more at the last; linear in between.
INITS = {
    "neutral": {"keep": (1.0, 0.0), "embed": (0.0, 0.0)},
    "nanochat": {"keep": (1.15, -0.10), "embed": (0.20, -0.15)},
}


class ResidualScalars(Residual):
    """x <- keep_i x + embed_i x0 before layer i, x0 = Norm(embedding); plain sums inside of it."""

    class Options(Residual.Options):
        """init: "neutral" starts as PreNorm, "nanochat" from x0 with nanochat's numbers."""

        init: Literal["neutral", "nanochat"] = "neutral"

    family = "single stream"
    summary = "every layer begins with a learned mix of stream and embedding"
    equation = "before layer i: x' = keep_i x + embed_i Norm(embedding)"
    source = "github.com/KellerJordan/modded-nanogpt and karpathy/nanochat (x0-lambdas)"
    notes = (
        "nanochat's backout, smear and value embeddings are ideas of their own and left out, and "
        "so are its learning rates for these scalars."
    )
    reduces_to_prenorm_at_init = True
    examples: ClassVar = {"": {}, "nanochat": {"init": "nanochat"}}

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        depth_L = jnp.linspace(0.0, 1.0, cfg.n_layers)
        for name, (first, more) in INITS[self.options(cfg).init].items():
            value_L = first + more * depth_L
            made = param(None, (cfg.n_layers,), lambda *_, value_L=value_L: value_L,
                         axes=("layer",), group="vector")  # fmt: skip
            setattr(self, name, made)

    def init(self, x_BTD):
        x0_BTD = rms_norm(x_BTD, self.cfg.norm_eps)
        starts_normed = self.options(self.cfg).init == "nanochat"
        return State(history=x0_BTD, carry=x0_BTD if starts_normed else x_BTD)

    def prepare(self, state, site):
        if not state.is_attention:
            return state._replace(own=state.carry)
        weights, values = [self.keep[...], self.embed[...]], [state.carry, state.history]
        return state._replace(own=weighted_sum(weights, values))

    def read(self, state, site):
        return state.own

    def write(self, state, site, y_BTD):
        return state._replace(carry=state.own + y_BTD)

    def readout(self, state):
        return state.carry

    @classmethod
    def reduces_to_prenorm(cls, cfg):
        return cls.options(cfg).init == "neutral"

    @classmethod
    def extra_params(cls, cfg):
        return 2 * cfg.n_layers

    @classmethod
    def flops_per_token(cls, cfg):
        return 3 * cfg.d_model + cfg.n_layers * 3 * cfg.d_model  # the norm, and the mixes

    @classmethod
    def io_per_token(cls, cfg):
        mix = io.Step("mix, every other sublayer", cfg.d_model, cfg.d_model / 2)
        return io.total([mix, *io.standard(cfg.d_model)])

    @classmethod
    def saved_activations(cls, cfg):
        L, neutral = cfg.n_layers, cls.options(cfg).init == "neutral"
        # The embedding, x0, and the stream after each layer.
        if cls.remat(cfg) != "none":
            return 2 + L
        # What sublayers read too; the first read of nanochat's is a multiple of x0.
        return 2 + L + 2 * L - (not neutral)
