"""ReZero: every output with a learned weight that starts at zero."""

from models.params import param
from models.residuals.arithmetic import added, scaled
from models.residuals.single_stream import SingleStream


class ReZero(SingleStream):
    """x <- x + alpha_l f_l(x), alpha_l = 0 at first."""

    summary = "every output with a learned weight, zero at first"
    equation = "x' = x + α_l f_l(x)"
    source = "arXiv 2003.04887"
    notes = "The sublayer's input norm is kept; the original drops it."
    reduces_to_prenorm_at_init = False

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        self.alpha = param(None, (cfg.n_sublayers,), 0.0, axes=("sublayer",), group="vector")

    def write(self, state, site, y_BTD):
        return state._replace(carry=added(state.carry, scaled(self.alpha[...], y_BTD)))

    @classmethod
    def extra_params(cls, cfg):
        return cfg.n_sublayers

    @classmethod
    def flops_per_token(cls, cfg):
        return cfg.n_sublayers * cfg.d_model

    @classmethod
    def saved_activations(cls, cfg):
        outputs = cfg.n_sublayers if cls.remat(cfg) == "none" else 0  # for the gradient of alpha
        return cls.streams_kept(cfg) + outputs
