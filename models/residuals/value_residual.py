"""Value residual: attention mixes the first layer's values into its own."""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field

from models.params import param
from models.residuals import io
from models.residuals.arithmetic import weighted_sum
from models.residuals.base import Residual, State


class Carry(NamedTuple):
    """The stream, and in the first layer its values, once there are any."""

    x_BTD: Float[Array, "B T D"]
    v_BTKH: Float[Array, "B T K H"] | None


class ValueResidual(Residual):
    """x <- x + f_l(x), where attention uses w_0 v_1 + w_1 v_l of its values v_l, but in layer 1."""

    class Options(Residual.Options):
        """init: the weight of the first layer's values, 1 - init that of a layer's own.

        learned: whether a layer may change both.
        """

        learned: bool = True
        init: float = Field(default=0.5)

    family = "single stream"
    summary = "PreNorm whose attention adds the values of the first layer to its own"
    equation = "x' = x + f(x), with values w₀ v₁ + w₁ v_l in attention"
    source = "arXiv 2410.17897, learnable ResFormer"
    notes = (
        "Values are mixed before heads are repeated for grouped queries. Weights start at init "
        "and 1 - init; the first layer keeps its own values."
    )
    reduces_to_prenorm_at_init = False
    examples: ClassVar = {"": {}, "constant": {"learned": False}, "neutral": {"init": 0.0}}

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        options = self.options(cfg)
        start = jnp.array([options.init, 1 - options.init])
        if options.learned:
            shape = (cfg.n_layers, 2)
            self.weight = param(
                None, shape, lambda *_: jnp.tile(start, (cfg.n_layers, 1)),
                axes=("layer", None), group="vector",
            )  # fmt: skip

    @classmethod
    def segments(cls, cfg):
        # The first layer is apart, so that its values are history to all others.
        first, rest = range(2), range(2, cfg.n_sublayers)
        return [first, rest] if rest else [first]

    @classmethod
    def remat(cls, cfg):
        return "layer" if cfg.remat == "block" else cfg.remat  # no block but the whole depth

    def init(self, x_BTD):
        return State(history=None, carry=Carry(x_BTD, None))

    def read(self, state, site):
        return state.carry.x_BTD

    def keys_values(self, state, site, k_BTKH, v_BTKH):
        if state.history is None:
            return k_BTKH, v_BTKH, state._replace(carry=state.carry._replace(v_BTKH=v_BTKH))
        options = self.options(self.cfg)
        if options.learned:
            weights = self.weight[...]
        else:
            weights = jnp.array([options.init, 1 - options.init])
        return k_BTKH, weighted_sum(list(weights), [state.history, v_BTKH]), state

    def write(self, state, site, y_BTD):
        carry = state.carry
        return state._replace(carry=carry._replace(x_BTD=carry.x_BTD + y_BTD))

    def end(self, state, segment):
        if state.history is None:
            return State(history=state.carry.v_BTKH, carry=Carry(state.carry.x_BTD, None))
        return state

    def readout(self, state):
        return state.carry.x_BTD

    @classmethod
    def reduces_to_prenorm(cls, cfg):
        return cls.options(cfg).init == 0 or cfg.n_layers == 1  # the first layer is unchanged

    @classmethod
    def idle(cls, cfg):
        reason = "the first layer uses its own values alone"
        return {"weight[0]": reason} if cls.options(cfg).learned else {}

    @classmethod
    def extra_params(cls, cfg):
        return 2 * cfg.n_layers * cls.options(cfg).learned

    @classmethod
    def flops_per_token(cls, cfg):
        return 3 * cfg.n_kv_heads * cfg.head_dim * (cfg.n_layers - 1)

    @classmethod
    def io_per_token(cls, cfg):
        mixed = 3 * cfg.n_kv_heads * cfg.head_dim * (cfg.n_layers - 1)
        return io.total(io.standard(cfg.d_model)) + mixed / cfg.n_sublayers

    @classmethod
    def saved_activations(cls, cfg):
        return cls.streams_kept(cfg)
