"""Hyper-Connections whose streams are never mixed: each keeps what it has, and adds."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from models.params import param
from models.residuals import io
from models.residuals.arithmetic import unstack
from models.residuals.streams import (
    EPSILON,
    SCALE,
    Mix,
    MultiStream,
    affine,
    head,
    head_flops,
    head_idle,
    head_params,
    init_head,
    normal,
    project,
    projection_flops,
    recomputed,
    sum_flops,
    uniform_logit,
)


class IdentityHC(MultiStream):
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
        n, S, D = self.n, cfg.n_sublayers, cfg.d_model
        k_phi, k_head = jax.random.split(key)
        base = jnp.tile(jnp.repeat(jnp.array([uniform_logit(n), 0.0]), n)[None], (S, 1))
        wide, vector = ("sublayer", None, None), {"axes": ("sublayer", None), "group": "vector"}
        self.phi = param(k_phi, (S, n * D, 2 * n), normal, axes=wide, group="mixing")
        self.scale = param(None, (S, 2), SCALE, **vector)
        self.base = param(None, (S, 2 * n), lambda *_: base, **vector)
        init_head(self, k_head)

    def prepare(self, state, site):
        z = project(state.carry, self.phi[...], self.cfg.norm_eps)
        own = recomputed(self._weights, z, self.scale[...], self.base[...])
        return state._replace(own=own)

    def _weights(self, z, scale, base) -> Mix:
        sizes = [self.n, self.n]
        pre, post = (
            jax.nn.sigmoid(affine(*parts))
            for parts in zip(
                jax.lax.split(z, sizes), scale, jax.lax.split(base, sizes), strict=True
            )
        )
        return Mix(pre=unstack(pre + EPSILON), post=unstack(2 * post + EPSILON), comb=None)

    def readout(self, state):
        return head(self, state)

    @classmethod
    def idle(cls, cfg):
        return head_idle(cls.options(cfg).n_streams)

    @classmethod
    def extra_params(cls, cfg):
        n = cls.options(cfg).n_streams
        one = n * cfg.d_model * 2 * n + 2 * n + 2
        return cfg.n_sublayers * one + head_params(cfg, n)

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
