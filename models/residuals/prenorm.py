"""The baseline: every sublayer's output is added with weight one."""

from models.residuals import io
from models.residuals.base import Residual, State


class PreNorm(Residual):
    """x <- x + f_l(x)."""

    family = "single stream"
    summary = "sum of all earlier outputs, each with weight one (the baseline)"
    equation = "x' = x + f_l(x)"
    source = "arXiv 2002.04745"
    reduces_to_prenorm_at_init = True

    def init(self, x_BTD):
        return State(history=(), carry=x_BTD)

    def read(self, state, site):
        return state.carry

    def write(self, state, site, y_BTD):
        return state._replace(carry=state.carry + y_BTD)

    def readout(self, state):
        return state.carry

    @classmethod
    def extra_params(cls, cfg):
        return 0

    @classmethod
    def flops_per_token(cls, cfg):
        return 0

    @classmethod
    def io_per_token(cls, cfg):
        return io.total(io.standard(cfg.d_model))

    @classmethod
    def saved_activations(cls, cfg):
        # The stream before each sublayer or layer, and before the final norm.
        return 1 + (cfg.n_sublayers if cls.remat(cfg) == "none" else cfg.n_layers)
