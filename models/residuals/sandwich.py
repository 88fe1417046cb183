"""Sandwich norm: outputs are normalised as inputs are."""

from typing import ClassVar

import jax.numpy as jnp

from models.params import param
from models.residuals import io
from models.residuals.arithmetic import added, rms_norm
from models.residuals.base import State
from models.residuals.single_stream import SingleStream


class Sandwich(SingleStream):
    """x <- x + Norm(f_l(x)) * gain_l; the embedding is normalised first."""

    class Options(SingleStream.Options):
        """embedding_norm: whether the embedding is normalised, as in Peri-LN."""

        embedding_norm: bool = True

    summary = "every output normalised before it is added (Peri-LN)"
    equation = "x' = x + Norm(f_l(x)) · gain_l,  x₀ = Norm(embedding) · gain"
    source = "arXiv 2502.02732 (Peri-LN)"
    notes = "Without embedding_norm it is the sandwich norm of Gemma 2."
    reduces_to_prenorm_at_init = False
    examples: ClassVar = {"": {}, "raw embedding": {"embedding_norm": False}}

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        shape, axes = (cfg.n_sublayers, cfg.d_model), ("sublayer", "features")
        self.gain = param(None, shape, 1.0, axes=axes, group="vector")
        self.embedding_norm = self.options(cfg).embedding_norm
        if self.embedding_norm:
            self.embed_gain = param(None, shape[1:], 1.0, axes=axes[1:], group="vector")

    def init(self, x_BTD):
        if self.embedding_norm:
            x_BTD = rms_norm(x_BTD, self.cfg.norm_eps, self.embed_gain[...])
        return State(history=(), carry=x_BTD)

    def write(self, state, site, y_BTD):
        y_BTD = rms_norm(y_BTD.astype(jnp.float32), self.cfg.norm_eps, self.gain[...])
        return state._replace(carry=added(state.carry, y_BTD))

    @classmethod
    def n_norms(cls, cfg) -> int:
        """Norms that PreNorm does not have, with a gain each."""
        return cfg.n_sublayers + cls.options(cfg).embedding_norm

    @classmethod
    def extra_params(cls, cfg):
        return cls.n_norms(cfg) * cfg.d_model

    @classmethod
    def flops_per_token(cls, cfg):
        return cls.n_norms(cfg) * 4 * cfg.d_model

    @classmethod
    def io_per_token(cls, cfg):
        return io.total(io.norm(cfg.d_model) + io.standard(cfg.d_model))

    @classmethod
    def saved_activations(cls, cfg):
        embedding = 2 * cls.options(cfg).embedding_norm  # as it is, and normalised without gain
        if cls.remat(cfg) == "none":
            # The first stream; then each output, the same normalised, and the stream after it.
            return embedding + 1 + 3 * cfg.n_sublayers
        return embedding + 1 + cfg.n_layers
