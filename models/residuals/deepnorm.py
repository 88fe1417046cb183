"""DeepNorm: PostNorm with a heavier skip and smaller initial weights."""

from models.residuals.postnorm import PostNorm


class DeepNorm(PostNorm):
    """x <- Norm(a x + f_l(x)) * gain_l with a = (2L)^(1/4) in L layers.

    Weights that outputs are linear in start (8L)^(-1/4) times as large; f_l does not normalise its
    input.
    """

    summary = "PostNorm with a heavier skip and smaller initial weights"
    equation = "x' = Norm(a x + f_l(x)) · gain_l,  a = (2L)^¼"
    source = "arXiv 2203.00555, with the constants of decoders"
    notes = (
        "RMSNorm in the place of LayerNorm; gate is scaled as up is, where the original has one "
        "matrix."
    )

    @classmethod
    def skip_weight(cls, cfg):
        return (2 * cfg.n_layers) ** 0.25

    @classmethod
    def init_scales(cls, cfg):
        return dict.fromkeys(("v", "out", "gate", "up", "down"), (8 * cfg.n_layers) ** -0.25)

    @classmethod
    def flops_per_token(cls, cfg):
        return cfg.n_sublayers * cfg.d_model
