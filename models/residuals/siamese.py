"""SiameseNorm: a normalised and a plain stream share every sublayer."""

import jax
import jax.numpy as jnp

from models.params import param
from models.residuals import io
from models.residuals.arithmetic import added, rms_norm, scaled
from models.residuals.base import Residual, State


class Siamese(Residual):
    """Streams X and Y, both the embedding at first; l = 0, 1, .. counts the sublayers.

    h_l = X + Norm(Y) * y_gain_l,  y = f_l(h_l)
    X  <- Norm(X + y / sqrt(l+1)) * x_gain_l
    Y  <- Y + y
    and the readout is X + Norm(Y) * y_gain_S.
    """

    family = "streams"
    summary = "a PostNorm and a PreNorm stream that share every sublayer"
    equation = "h = X + Norm(Y),  X' = Norm(X + f_l(h)/√(l+1)),  Y' = Y + f_l(h)"
    source = "arXiv 2602.08064, as arXiv 2603.15031, Table 5, writes it"
    notes = (
        "l counts sublayers from 0, on which the sources are silent; every norm has a gain; no "
        "norms of queries, keys and values but the model's own."
    )
    reduces_to_prenorm_at_init = False
    final_norm = False

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        S, D, axes = cfg.n_sublayers, cfg.d_model, ("sublayer", "features")
        self.x_gain = param(None, (S, D), 1.0, axes=axes, group="vector")
        self.y_gain = param(None, (S + 1, D), 1.0, axes=axes, group="vector")  # last: readout's

    def init(self, x_BTD):
        return State(history=(), carry=(x_BTD, x_BTD))

    def _join(self, carry, y_gain_D):
        """X + Norm(Y) * gain."""
        x_BTD, y_BTD = carry
        return added(x_BTD, rms_norm(y_BTD.astype(jnp.float32), self.cfg.norm_eps, y_gain_D))

    def read(self, state, site):
        return self._join(state.carry, self.y_gain[...])

    def write(self, state, site, y_BTD):
        shrink = jax.lax.rsqrt(jnp.float32(site) + 1)
        new_BTD = state.carry[0].astype(jnp.float32) + scaled(shrink, y_BTD)
        x_BTD = rms_norm(new_BTD, self.cfg.norm_eps, self.x_gain[...]).astype(y_BTD.dtype)
        return state._replace(carry=(x_BTD, state.carry[1] + y_BTD))

    def readout(self, state):
        return self._join(state.carry, self.y_gain[-1])

    def streams(self, state):
        return state.carry

    @classmethod
    def extra_params(cls, cfg):
        return (2 * cfg.n_sublayers + 1) * cfg.d_model

    @classmethod
    def flops_per_token(cls, cfg):
        # A sublayer's two norms, scale and two additions of three; the readout's norm is in the
        # place of the final one.
        return cfg.n_sublayers * (2 * 4 + 1 + 2) * cfg.d_model + cfg.d_model

    @classmethod
    def io_per_token(cls, cfg):
        D = cfg.d_model
        join = [*io.norm(D), io.Step("join", 2 * D, D)]
        return io.total([*join, *io.standard(D), *io.norm(D), *io.standard(D)])

    @classmethod
    def saved_activations(cls, cfg):
        L, S = cfg.n_layers, cfg.n_sublayers
        if cls.remat(cfg) != "none":
            # Both streams after each layer but the last, the embedding, and for the readout below.
            return 2 * (L - 1) + 1 + 3
        # Each sublayer's input, Y, Norm(Y), the new X before its norm and after, without gain; the
        # first two of these last are the next Y's. The readout has Y, Norm(Y) and itself.
        return 5 * S - 2 + 3
