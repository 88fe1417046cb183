"""Hyper-Connections whose streams are never mixed: each keeps what it has, and adds."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from models.residuals import io
from models.residuals.arithmetic import unstack
from models.residuals.projected import (
    EPSILON,
    Projected,
    head,
    head_flops,
    head_idle,
    head_params,
    init_head,
    normal,
    uniform_logit,
)
from models.residuals.streams import Mix, projection_flops, sum_flops


class IdentityHC(Projected):
    """h = sum_s pre_s x_s; x'_s = x_s + post_s f(h).

    With z = Norm(vec(x)) phi: pre = sigmoid(z), post = 2 sigmoid(z), each z times a scale and plus
    a base of its own. The readout is a weighted sum, with weights made like pre.
    """

    summary = "n streams, read and written by weights that depend on all of them, never mixed"
    equation = "x'ₛ = xₛ + 2σ(zₛ) f(Σₛ σ(zₛ) xₛ),  z = Norm(vec x) φ"
    source = "Hunyuan 4 (transformers, hy_v4): mHC with the identity for H_res"
    notes = "Post weights have an epsilon too, as in the original."
    reduces_to_prenorm_at_init = False
    examples: ClassVar = {"": {}, "two streams": {"n_streams": 2}}

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        n, S = self.n, cfg.n_sublayers
        k_phi, k_head = jax.random.split(key)
        base = jnp.tile(jnp.repeat(jnp.array([uniform_logit(n), 0.0]), n)[None], (S, 1))
        self.init_projection(k_phi, normal, base)
        init_head(self, k_head)

    @classmethod
    def sizes(cls, cfg):
        return [cls.options(cfg).n_streams] * 2

    def mix(self, pre, post):
        pre, post = jax.nn.sigmoid(pre), jax.nn.sigmoid(post)
        return Mix(pre=unstack(pre + EPSILON), post=unstack(2 * post + EPSILON), comb=None)

    def readout(self, state):
        return head(self, state)

    @classmethod
    def idle(cls, cfg):
        return head_idle(cls.options(cfg).n_streams)

    @classmethod
    def extra_params(cls, cfg):
        return cls.projection_params(cfg) + head_params(cfg, cls.options(cfg).n_streams)

    @classmethod
    def flops_per_token(cls, cfg):
        n, D = cls.options(cfg).n_streams, cfg.d_model
        one = projection_flops(cfg, n, 2 * n) + sum_flops(cfg, n) + (2 * n - 1) * D
        return cfg.n_sublayers * one + head_flops(cfg, n)

    @classmethod
    def io_per_token(cls, cfg):
        return io.total(io.identity_connections(cfg.d_model, cls.options(cfg).n_streams))

    @classmethod
    def saved_activations(cls, cfg):
        return super().saved_activations(cfg) + cls.options(cfg).n_streams  # which the head weighs
