"""PreNorm with a stream that is a mean: the same model, another residual mechanism."""

import jax.numpy as jnp

from models.residuals.arithmetic import weighted_sum
from models.residuals.single_stream import SingleStream


class Rescaled(SingleStream):
    """x <- l/(l+1) x + 1/(l+1) f_l(x), where l = 1, 2, .. counts the sublayers.

    The stream is the mean of the embedding and all outputs so far, and norms undo the factor: but
    for their epsilon this is PreNorm with any weights. What a comparison says of it beside PreNorm
    is what the comparison says of nothing.
    """

    summary = "the mean of all earlier outputs: PreNorm in other words (a control)"
    equation = "x' = l/(l+1) x + 1/(l+1) f_l(x),  l = 1, 2, .."
    source = "this suite; equal to arXiv 2002.04745 as norms undo a positive factor"
    notes = "A control: PreNorm's losses up to rounding and the epsilon of norms."
    reduces_to_prenorm_at_init = True

    def write(self, state, site, y_BTD):
        n = jnp.float32(site) + 1  # terms in the mean so far
        return state._replace(carry=weighted_sum([n / (n + 1), 1 / (n + 1)], [state.carry, y_BTD]))

    @classmethod
    def extra_params(cls, cfg):
        return 0

    @classmethod
    def flops_per_token(cls, cfg):
        return 2 * cfg.n_sublayers * cfg.d_model

    @classmethod
    def saved_activations(cls, cfg):
        return cls.streams_kept(cfg)
