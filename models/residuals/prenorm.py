"""The baseline: every sublayer's output is added with weight one."""

from models.residuals.single_stream import SingleStream


class PreNorm(SingleStream):
    """x <- x + f_l(x)."""

    summary = "sum of all earlier outputs, each with weight one (the baseline)"
    equation = "x' = x + f_l(x)"
    source = "arXiv 2002.04745"
    reduces_to_prenorm_at_init = True

    def write(self, state, site, y_BTD):
        return state._replace(carry=state.carry + y_BTD)

    @classmethod
    def extra_params(cls, cfg):
        return 0

    @classmethod
    def flops_per_token(cls, cfg):
        return 0

    @classmethod
    def saved_activations(cls, cfg):
        return cls.streams_kept(cfg)
