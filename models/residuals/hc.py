"""Hyper-Connections: n streams, mixed by unconstrained matrices that depend on the input."""

from typing import ClassVar

import jax.numpy as jnp

from models.params import param
from models.residuals import io
from models.residuals.arithmetic import unstack
from models.residuals.base import State
from models.residuals.streams import (
    SCALE,
    Mix,
    MultiStream,
    home,
    mixing_flops,
    project,
    projection_flops,
    recomputed,
)


class HyperConnections(MultiStream):
    """h = sum_s A_s0 x_s; x'_t = beta_t f(h) + sum_s A_s,1+t x_s.

    A_s = static_alpha_s + scale_alpha tanh(Norm(x_s) dynamic_alpha), and beta_s alike.
    """

    class Options(MultiStream.Options):
        """dynamic: weights depend on the input; tanh: bounds what does."""

        dynamic: bool = True
        tanh: bool = True

    summary = "n streams, read, written and mixed by weights that depend on each of them"
    equation = "h = Σₛ Aₛ₀ xₛ;  x'ₜ = βₜ f(h) + Σₛ Aₛₜ xₛ;  A = A₀ + s tanh(Norm(x) W)"
    source = "arXiv 2409.19606, Eq. 2 and 10-14"
    notes = (
        "RMSNorm where the paper's code has LayerNorm; output matrices are not rescaled by √n, so "
        "that the model is PreNorm at first."
    )
    reduces_to_prenorm_at_init = True
    examples: ClassVar = {
        "": {},
        "static": {"n_streams": 2, "dynamic": False},
        "no tanh": {"n_streams": 3, "tanh": False},
        "one stream": {"n_streams": 1},
    }

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        n, S, D = self.n, cfg.n_sublayers, cfg.d_model
        identity = jnp.broadcast_to(jnp.eye(n), (S, n, n))
        alpha = jnp.concatenate([home(cfg, n)[..., None], identity], axis=-1)
        vector = {"axes": ("sublayer", None), "group": "vector"}
        self.static_alpha = param(
            None, (S, n, n + 1), lambda *_: alpha, axes=("sublayer", None, None), group="vector"
        )
        self.static_beta = param(None, (S, n), 1.0, **vector)
        if self.options(cfg).dynamic:
            wide = {"axes": ("sublayer", "features", None), "group": "mixing"}
            self.dynamic_alpha = param(None, (S, D, n + 1), 0.0, **wide)
            self.dynamic_beta = param(
                None, (S, D), 0.0, axes=("sublayer", "features"), group="mixing"
            )
            scale = {"axes": ("sublayer",), "group": "vector"}
            self.scale_alpha = param(None, (S,), SCALE, **scale)
            self.scale_beta = param(None, (S,), SCALE, **scale)

    def prepare(self, state: State, site):
        alpha, beta = self.static_alpha[...], self.static_beta[...]
        if not self.options(self.cfg).dynamic:
            pre, *mixes = alpha.T
            return state._replace(own=Mix(pre, beta, list(zip(*mixes, strict=True))))
        phi = jnp.concatenate([self.dynamic_alpha[...], self.dynamic_beta[...][:, None]], axis=1)
        scale = jnp.append(jnp.repeat(self.scale_alpha[...], self.n + 1), self.scale_beta[...])
        base = jnp.concatenate([alpha, beta[:, None]], axis=1)
        rows = []
        for x_BTD, static in zip(state.carry, base, strict=True):
            z = project([x_BTD], phi, self.cfg.norm_eps)
            rows.append(recomputed(self._squash, z, scale, static))
        return state._replace(
            own=Mix(
                pre=[row[0] for row in rows],
                post=[row[-1] for row in rows],
                comb=[row[1:-1] for row in rows],
            )
        )

    def _squash(self, z, scale, base):
        bounded = jnp.tanh(z) if self.options(self.cfg).tanh else z
        return unstack(bounded * scale[:, None, None] + base[:, None, None])

    @classmethod
    def extra_params(cls, cfg):
        options = cls.options(cfg)
        n, D = options.n_streams, cfg.d_model
        return cfg.n_sublayers * (n * (n + 2) + options.dynamic * (D * (n + 2) + 2))

    @classmethod
    def flops_per_token(cls, cfg):
        options, D = cls.options(cfg), cfg.d_model
        n = options.n_streams
        one = mixing_flops(cfg, n)
        if options.dynamic:
            one += n * projection_flops(cfg, 1, n + 2) + 2 * n * (n + 2)
        return cfg.n_sublayers * one + (n - 1) * D

    @classmethod
    def io_per_token(cls, cfg):
        options = cls.options(cfg)
        steps = io.hyper_connections(cfg.d_model, options.n_streams)
        return io.total(steps if options.dynamic else steps[1:])

    @classmethod
    def saved_activations(cls, cfg):
        options = cls.options(cfg)
        kept = super().saved_activations(cfg)
        if options.dynamic or cls.remat(cfg) != "none":
            return kept
        # Inputs that are multiples, by one number, of the only stream or of the embedding.
        return kept - (cfg.n_sublayers if options.n_streams == 1 else 1)
