"""ANCRe: after each layer, a learned convex combination of all earlier states is added."""

from typing import ClassVar

import jax
from pydantic import Field

from models.params import param
from models.residuals import io
from models.residuals.arithmetic import added, scaled, unstack
from models.residuals.base import Residual
from models.residuals.dense import DenseHistory


class ANCRe(DenseHistory):
    """H_{i+1} = Layer_i(H_i) + sum_{j<=i} p_ij H_j, p_i = softmax(theta_i / tau).

    Layer_i includes its own residual sums; theta is zero at first.
    """

    class Options(Residual.Options):
        """tau: temperature; theta learns 1/tau times as fast."""

        tau: float = Field(default=0.01, gt=0)

    summary = "layers' outputs plus a static convex combination of all earlier states"
    equation = "Hᵢ₊₁ = Layerᵢ(Hᵢ) + Σⱼ softmaxⱼ(θᵢ/τ) Hⱼ,  j = 0 .. i"
    source = "arXiv 2602.09009; order and indices of github.com/zhangyilang/ANCRe"
    notes = (
        "What is summed are states after their own sums. The first layer has one, the embedding, "
        "and adds it whatever theta is."
    )
    reduces_to_prenorm_at_init = False
    examples: ClassVar = {"": {}, "tau 1": {"tau": 1.0}}

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        shape = (self.extra_params(cfg),)
        self.theta = param(None, shape, 0.0, axes=(None,), group="vector")

    def layer_input(self, history, layer):
        return history[layer]

    def write(self, state, site, y_BTD):
        if site % 2 == 0:
            return super().write(state, site, y_BTD)
        rows = jax.lax.split(self.theta[...], range(1, self.cfg.n_layers + 1))
        p = unstack(jax.nn.softmax(rows[site // 2] / self.options(self.cfg).tau))
        earlier = [scaled(*pair) for pair in zip(p, state.history, strict=True)]
        return state._replace(carry=added(state.own, y_BTD, *earlier))

    @classmethod
    def idle(cls, cfg):
        return {"theta[0]": "the softmax of one state is one"}

    @classmethod
    def extra_params(cls, cfg):
        return cfg.n_layers * (cfg.n_layers + 1) // 2

    @classmethod
    def flops_per_token(cls, cfg):
        return 2 * cfg.d_model * cls.extra_params(cfg)

    @classmethod
    def io_per_token(cls, cfg):
        # Attention's output merges as ever, the MLP's together with the i + 1 earlier states.
        L, D = cfg.n_layers, cfg.d_model
        merges = [io.Step("merge", (2 + i + 1) * D, D) for i in range(L)]
        return (io.total(io.standard(D)) * L + io.total(merges)) / cfg.n_sublayers

    @classmethod
    def saved_activations(cls, cfg):
        return cls.streams_kept(cfg)
