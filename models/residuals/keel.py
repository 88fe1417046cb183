"""Keel: PostNorm whose sublayers normalise their input too, with a skip as heavy as depth."""

from typing import ClassVar

from pydantic import Field

from models.residuals.postnorm import PostNorm


class Keel(PostNorm):
    """x <- Norm(alpha x + f_l(x)) * gain_l, where f_l normalises its input."""

    class Options(PostNorm.Options):
        """alpha is the weight of the skip: the number of sublayers S, unless given."""

        alpha: float | None = Field(default=None, gt=0)

    summary = "PostNorm with normalised inputs and a skip as heavy as depth"
    equation = "x' = Norm(α x + f_l(x)) · gain_l,  α = S"
    source = "arXiv 2601.19895, as arXiv 2603.15031, Table 5, writes it"
    notes = (
        "alpha is fixed, and the first layer is like all others, on which the sources are silent."
    )
    input_norm = True
    examples: ClassVar = {"": {}, "light skip": {"alpha": 2.0}}

    @classmethod
    def options(cls, cfg):
        options = super().options(cfg)
        return options.model_copy(update={"alpha": options.alpha or float(cfg.n_sublayers)})

    @classmethod
    def skip_weight(cls, cfg):
        return cls.options(cfg).alpha

    @classmethod
    def flops_per_token(cls, cfg):
        # The norms of the sums, 4D each, of which one is in the place of the final norm.
        return cfg.n_sublayers * cfg.d_model + 4 * (cfg.n_sublayers - 1) * cfg.d_model
