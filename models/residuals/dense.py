"""What residual connections share whose layers read the outputs of all earlier layers."""

from models.residuals.base import Residual, State


class DenseHistory(Residual):
    """The input of layer i is made of X_0 .. X_i, the embedding and all outputs of layers so far.

    Subclasses make it in `layer_input(history, i)`. That happens inside of the layer, so that remat
    "layer" makes it again and backward keeps each X_j once.
    """

    family = "dense history"

    @classmethod
    def segments(cls, cfg):
        return [range(site, site + 2) for site in range(0, cfg.n_sublayers, 2)]

    @classmethod
    def is_scanned(cls, cfg, segment):
        return False  # no two layers have equally many sources

    def init(self, x_BTD):
        return State(history=(x_BTD,), carry=None)

    def layer_input(self, history, layer: int):
        """What layer `layer` starts from; the readout where all layers are done."""
        raise NotImplementedError

    def prepare(self, state, site):
        own = state.carry if site % 2 else self.layer_input(state.history, site // 2)
        return state._replace(own=own)

    def read(self, state, site):
        return state.own

    def write(self, state, site, y_BTD):
        return state._replace(carry=state.own + y_BTD)

    def end(self, state, segment):
        return State(history=(*state.history, state.carry), carry=None)

    def readout(self, state):
        return self.layer_input(state.history, self.cfg.n_layers)
