"""What residual connections of one stream share: every sublayer reads the stream as it is."""

from models.residuals import io
from models.residuals.base import Residual, State


class SingleStream(Residual):
    """h_l = x_l, x_0 the embedding; subclasses say in `write` what becomes of x and f_l(x)."""

    family = "single stream"

    def init(self, x_BTD):
        return State(history=(), carry=x_BTD)

    def read(self, state, site):
        return state.carry

    def readout(self, state):
        return state.carry

    @classmethod
    def io_per_token(cls, cfg):
        return io.total(io.standard(cfg.d_model))
