"""LayerScale: every channel of every output with a learned weight that starts near zero."""

from typing import ClassVar

from models.params import param
from models.residuals.arithmetic import added, scaled
from models.residuals.single_stream import SingleStream


class LayerScale(SingleStream):
    """x <- x + scale_l * f_l(x) with a vector scale_l, all `init` at first."""

    class Options(SingleStream.Options):
        """init: what all weights start at; anything but zero."""

        init: float = 1e-5

    summary = "every output channel with a learned weight, near zero at first"
    equation = "x' = x + λ_l ⊙ f_l(x)"
    source = "arXiv 2103.17239 (CaiT)"
    notes = "One initial value at all depths, 1e-5 as in timm; CaiT's own depends on depth."
    reduces_to_prenorm_at_init = False
    examples: ClassVar = {"": {}, "from one": {"init": 1.0}}

    @classmethod
    def options(cls, cfg):
        options = super().options(cfg)
        if options.init == 0:
            raise ValueError("init is 0; layerscale starts at any other number (rezero at zero)")
        return options

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        shape, axes = (cfg.n_sublayers, cfg.d_model), ("sublayer", "features")
        self.scale = param(None, shape, self.options(cfg).init, axes=axes, group="vector")

    def write(self, state, site, y_BTD):
        return state._replace(carry=added(state.carry, scaled(self.scale[...], y_BTD)))

    @classmethod
    def reduces_to_prenorm(cls, cfg):
        return cls.options(cfg).init == 1

    @classmethod
    def extra_params(cls, cfg):
        return cfg.n_sublayers * cfg.d_model

    @classmethod
    def flops_per_token(cls, cfg):
        return cfg.n_sublayers * cfg.d_model

    @classmethod
    def saved_activations(cls, cfg):
        outputs = cfg.n_sublayers if cls.remat(cfg) == "none" else 0  # for the gradients of scale
        return cls.streams_kept(cfg) + outputs
