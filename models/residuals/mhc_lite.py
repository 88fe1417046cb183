"""mHC-lite: n streams, mixed by convex combinations of all n! permutations."""

import itertools
from math import factorial
from typing import ClassVar

import jax
import jax.numpy as jnp
from pydantic import Field

from models.params import param
from models.residuals.arithmetic import unstack
from models.residuals.projected import Projected
from models.residuals.streams import Mix, home, mixing_flops, projection_flops

OTHER_PERMUTATIONS = -8.0  # logit of all but the identity at first


class MHCLite(Projected):
    """h = sum_s pre_s x_s; x'_i = post_i f(h) + sum_j H_ij x_j, H = sum_r softmax(z)_r P_r.

    With z = Norm(vec(x)) phi: pre = sigmoid(z), post = 2 sigmoid(z), each z times a scale and plus
    a base of its own. P_r are all permutation matrices: H is doubly stochastic to the last bit.
    """

    class Options(Projected.Options):
        """n_streams: each sublayer weighs n_streams! permutations."""

        n_streams: int = Field(default=4, ge=1, le=5)

    summary = "n streams, mixed by a softmax over all permutations of them"
    equation = "x'ᵢ = 2σ(zᵢ) f(Σₛ σ(zₛ) xₛ) + Σⱼ (Σᵣ softmax(z)ᵣ Pᵣ)ᵢⱼ xⱼ"
    source = "arXiv 2601.05732, and its repository for initial values"
    notes = ""
    reduces_to_prenorm_at_init = False
    examples: ClassVar = {"": {}, "two streams": {"n_streams": 2}}

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        n, S, D = self.n, cfg.n_sublayers, cfg.d_model
        gate = 2 * home(cfg, n) - 1
        mix = jnp.full((S, factorial(n)), OTHER_PERMUTATIONS).at[:, 0].set(0)  # 0: the identity
        base = jnp.concatenate([gate, gate, mix], axis=1)
        self.gain = param(None, (S, n * D), 1.0, axes=("sublayer", None), group="vector")
        self.init_projection(None, 0.0, base)

    @classmethod
    def sizes(cls, cfg):
        n = cls.options(cfg).n_streams
        return [n, n, factorial(n)]

    @property
    def projection(self):
        return self.gain[...][:, None] * self.phi[...]

    def mix(self, pre, post, mix):
        return Mix(
            pre=unstack(jax.nn.sigmoid(pre)),
            post=unstack(2 * jax.nn.sigmoid(post)),
            comb=combined_permutations(unstack(jax.nn.softmax(mix, axis=0)), self.n),
        )

    @classmethod
    def extra_params(cls, cfg):
        gains = cfg.n_sublayers * cls.options(cfg).n_streams * cfg.d_model
        return cls.projection_params(cfg) + gains

    @classmethod
    def flops_per_token(cls, cfg):
        n, D = cls.options(cfg).n_streams, cfg.d_model
        one = projection_flops(cfg, n, 2 * n + factorial(n)) + mixing_flops(cfg, n)
        one += n * factorial(n)
        return cfg.n_sublayers * one + (n - 1) * D


def combined_permutations(weights, n: int) -> list[list]:
    """comb[j][i] = H_ij = sum of the weights of all permutations that take i to j.

    Args:
      weights: one array for each of the n! permutations, in the order of `itertools`.
    """
    permutations = list(itertools.permutations(range(n)))
    return [
        [sum(w for w, p in zip(weights, permutations, strict=True) if p[i] == j) for i in range(n)]
        for j in range(n)
    ]
