"""PostNorm: the stream is normalised after every addition."""

import jax.numpy as jnp

from models.params import param
from models.residuals import io
from models.residuals.arithmetic import added, rms_norm, scaled
from models.residuals.single_stream import SingleStream


class PostNorm(SingleStream):
    """x <- Norm(x + f_l(x)) * gain_l, where f_l does not normalise its input."""

    summary = "the stream normalised after every addition"
    equation = "x' = Norm(x + f_l(x)) · gain_l"
    source = "arXiv 1706.03762, section 3.1"
    notes = (
        "RMSNorm in the place of LayerNorm. The embedding enters as it is; sublayers have no norm "
        "of their own, and the readout none either."
    )
    reduces_to_prenorm_at_init = False
    input_norm = False
    final_norm = False

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        shape, axes = (cfg.n_sublayers, cfg.d_model), ("sublayer", "features")
        self.gain = param(None, shape, 1.0, axes=axes, group="vector")

    @classmethod
    def skip_weight(cls, cfg) -> float:
        """The weight of x beside that of f_l(x), which is one."""
        return 1.0

    def write(self, state, site, y_BTD):
        skip = jnp.float32(self.skip_weight(self.cfg))
        sum_BTD = added(scaled(skip, state.carry), y_BTD)  # in fp32 up to the norm
        normed_BTD = rms_norm(sum_BTD, self.cfg.norm_eps, self.gain[...])
        return state._replace(carry=normed_BTD.astype(y_BTD.dtype))

    @classmethod
    def extra_params(cls, cfg):
        return cfg.n_sublayers * cfg.d_model

    @classmethod
    def flops_per_token(cls, cfg):
        return 0  # its norms are PreNorm's at another place, and count as little

    @classmethod
    def io_per_token(cls, cfg):
        return io.total(io.standard(cfg.d_model) + io.norm(cfg.d_model))

    @classmethod
    def saved_activations(cls, cfg):
        if cls.remat(cfg) == "none":
            # The embedding; then each sum, the same normalised, and that times the gain.
            return 1 + 3 * cfg.n_sublayers
        return 1 + cfg.n_layers
