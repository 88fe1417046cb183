"""Manifold-constrained Hyper-Connections: n streams, mixed by doubly stochastic matrices."""

from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from pydantic import Field

from models.residuals.arithmetic import unstack, weighted_sum
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
from models.residuals.streams import Mix, home, mixing_flops, projection_flops, sum_flops

OFF_DIAGONAL = -8.0  # logit of what other streams send at first


class ManifoldHC(Projected):
    """h = sum_s pre_s x_s; x'_k = post_k f(h) + sum_j comb_jk x_j.

    With z = Norm(vec(x)) phi: pre = sigmoid(z), post = 2 sigmoid(z), comb = Sinkhorn(z), each z
    times a scale and plus a base of its own.
    """

    class Options(Projected.Options):
        """iterations: normalisations of columns; readout: how streams become one at the end."""

        iterations: int = Field(default=20, ge=1, le=200)
        readout: Literal["sum", "head", "mean"] = "sum"

    summary = "n streams, mixed by matrices that Sinkhorn's iteration makes doubly stochastic"
    equation = "x'ₖ = 2σ(zₖ) f(Σₛ σ(zₛ) xₛ) + Σⱼ Sinkhorn(z)ⱼₖ xⱼ,  z = Norm(vec x) φ"
    source = "arXiv 2512.24880, Eq. 5-9; epsilons and order as in DeepSeek-V4"
    notes = (
        "The paper leaves initial values open. Reads start at 1/n but for one stream a sublayer, "
        "which is preferred (0.475 of n = 4), so that streams part; writes at 1, phi's columns "
        "for them at zero; comb near the identity (logits -8 off its diagonal)."
    )
    reduces_to_prenorm_at_init = True
    examples: ClassVar = {
        "": {},
        "head": {"n_streams": 2, "readout": "head"},
        "mean": {"n_streams": 3, "readout": "mean", "iterations": 1},
    }

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        n, S = self.n, cfg.n_sublayers
        k_phi, k_head = jax.random.split(key)

        def phi(key, shape, dtype):  # no input moves what is written at first: it is one
            return normal(key, shape, dtype).at[..., n : 2 * n].set(0)

        comb = OFF_DIAGONAL * (1 - jnp.eye(n)).reshape(1, -1)
        base = [home(cfg, n) + uniform_logit(n), jnp.zeros((S, n)), jnp.tile(comb, (S, 1))]
        self.init_projection(k_phi, phi, jnp.concatenate(base, axis=1))
        if self.options(cfg).readout == "head":
            init_head(self, k_head)

    @classmethod
    def sizes(cls, cfg):
        n = cls.options(cfg).n_streams
        return [n, n, n * n]

    def mix(self, pre, post, comb):
        comb = sinkhorn(comb.reshape(self.n, self.n, *comb.shape[1:]), self._iterations)
        return Mix(
            pre=unstack(jax.nn.sigmoid(pre) + EPSILON),
            post=unstack(2 * jax.nn.sigmoid(post)),
            comb=[unstack(row) for row in unstack(comb)],
        )

    @property
    def _iterations(self) -> int:
        return self.options(self.cfg).iterations

    def readout(self, state):
        how = self.options(self.cfg).readout
        if how == "head":
            return head(self, state)
        weight = jnp.float32(1 if how == "sum" else 1 / self.n)
        return weighted_sum([weight] * self.n, state.carry)

    @classmethod
    def idle(cls, cfg):
        options = cls.options(cfg)
        return head_idle(options.n_streams) if options.readout == "head" else {}

    @classmethod
    def extra_params(cls, cfg):
        options = cls.options(cfg)
        learned = options.readout == "head"
        return cls.projection_params(cfg) + learned * head_params(cfg, options.n_streams)

    @classmethod
    def flops_per_token(cls, cfg):
        options, D = cls.options(cfg), cfg.d_model
        n = options.n_streams
        one = projection_flops(cfg, n, n * n + 2 * n) + mixing_flops(cfg, n)
        one += 4 * n * n * options.iterations
        readout = {"sum": (n - 1) * D, "mean": sum_flops(cfg, n), "head": head_flops(cfg, n)}
        return cfg.n_sublayers * one + readout[options.readout]

    @classmethod
    def saved_activations(cls, cfg):
        options = cls.options(cfg)
        weighed = options.n_streams * (options.readout == "head")
        return super().saved_activations(cfg) + weighed


def sinkhorn(logits, iterations: int):
    """A matrix [n, n, ...] whose columns sum to one, and rows as nearly as iterations bring it.

    Rows are indexed by the first axis. All as DeepSeek-V4 does it, epsilons included.
    """

    def normalised(m, axis):
        return m / (jnp.sum(m, axis=axis, keepdims=True) + EPSILON)

    m = normalised(jax.nn.softmax(logits, axis=1) + EPSILON, 0)
    step = lambda _, m: normalised(normalised(m, 1), 0)  # noqa: E731
    return jax.lax.fori_loop(0, iterations - 1, step, m)
