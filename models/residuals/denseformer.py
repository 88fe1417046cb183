"""DenseFormer: layers start from learned sums of the embedding and all layers' outputs."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from pydantic import Field

from models.params import param
from models.residuals import io
from models.residuals.arithmetic import unstack, weighted_sum
from models.residuals.base import Residual
from models.residuals.dense import DenseHistory


class DenseFormer(DenseHistory):
    """Y_i = sum_{j in J_i} alpha_ij X_j, X_{i+1} = Layer_i(Y_i); at first alpha_ii = 1, others 0.

    J_i is every k-th of 0 .. i, counted back from i, k the dilation. Only every p-th layer, p the
    period, has such a sum; Y_i = X_i elsewhere. The readout is Y_L.
    """

    class Options(Residual.Options):
        """dilation k: sources that lie k layers apart; period p: a sum after every p layers."""

        dilation: int = Field(default=1, ge=1)
        period: int = Field(default=1, ge=1)

    summary = "layers start from static sums of the embedding and all layers' outputs"
    equation = "Yᵢ = Σⱼ αᵢⱼ Xⱼ,  Xᵢ₊₁ = Layerᵢ(Yᵢ)"
    source = "arXiv 2402.02622, section 3; order and indices of github.com/epfml/DenseFormer"
    notes = "Without weight decay on the sums' weights, which the official code has."
    reduces_to_prenorm_at_init = True
    examples: ClassVar = {
        "": {},
        "dilation 2": {"dilation": 2},
        "period 2": {"period": 2},
        "dilation 3, period 2": {"dilation": 3, "period": 2},
    }

    @classmethod
    def options(cls, cfg):
        options = super().options(cfg)
        for name, given in options.model_dump().items():
            if given > cfg.n_layers:
                raise ValueError(
                    f"{name} {given} is more than the {cfg.n_layers} layers there are; "
                    f"it must be 1 to {cfg.n_layers}"
                )
        return options

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        sums = self.sums(cfg).values()
        latest = jnp.concatenate([jnp.eye(1, len(J), len(J) - 1)[0] for J in sums])
        self.alpha = param(None, latest.shape, lambda *_: latest, axes=(None,), group="vector")

    @classmethod
    def sums(cls, cfg) -> dict[int, range]:
        """By number of layers done: the sources of the sum that follows, the latest last."""
        options = cls.options(cfg)
        k, p = options.dilation, options.period
        return {i: range(i % k, i + 1, k) for i in range(p, cfg.n_layers + 1, p)}

    def layer_input(self, history, layer):
        sums = self.sums(self.cfg)
        if layer not in sums:
            return history[layer]
        rows = jax.lax.split(self.alpha[...], [len(J) for J in sums.values()])
        alpha_J = dict(zip(sums, rows, strict=True))[layer]
        return weighted_sum(unstack(alpha_J), [history[j] for j in sums[layer]])

    @classmethod
    def extra_params(cls, cfg):
        return sum(len(J) for J in cls.sums(cfg).values())

    @classmethod
    def flops_per_token(cls, cfg):
        return cfg.d_model * sum(2 * len(J) - 1 for J in cls.sums(cfg).values())

    @classmethod
    def io_per_token(cls, cfg):
        mixes = [step for J in cls.sums(cfg).values() for step in io.mix(cfg.d_model, len(J))]
        return io.total(io.standard(cfg.d_model)) + io.total(mixes) / cfg.n_sublayers

    @classmethod
    def saved_activations(cls, cfg):
        # Layers' outputs, what sums of several make of them, and what MLPs read.
        sums = {i for i, J in cls.sums(cfg).items() if len(J) > 1}
        if cls.remat(cfg) == "none":
            return 1 + cfg.n_sublayers + len(sums)
        return 1 + cfg.n_layers + (cfg.n_layers in sums)
