"""Streams that are weighed by a projection of all of them at once: mHC and its relatives."""

from math import log

import jax
from jaxtyping import Array, Float

from models.params import param
from models.residuals.arithmetic import unstack, weighted_sum
from models.residuals.base import State
from models.residuals.streams import (
    SCALE,
    Mix,
    MultiStream,
    project,
    projection_flops,
    recomputed,
    sum_flops,
)

EPSILON = 1e-6  # of gates and of Sinkhorn's sums, as DeepSeek-V4 has it
normal = jax.nn.initializers.normal(0.02)


class Projected(MultiStream):
    """z = Norm(vec(x)) phi comes in parts, each times a scale and plus a base of its own.

    Subclasses say how long the parts are, and make a `Mix` of them.
    """

    @classmethod
    def sizes(cls, cfg) -> list[int]:
        """Of the parts."""
        raise NotImplementedError

    def mix(self, *parts: Float[Array, "m B T"]) -> Mix:
        """The weights of one sublayer."""
        raise NotImplementedError

    def init_projection(self, key, phi, base_Sm: Float[Array, "S m"]) -> None:
        """Makes phi [S, n D, m], as its initialiser says, a scale for each part, and the base."""
        S, sizes = self.cfg.n_sublayers, self.sizes(self.cfg)
        wide, vector = ("sublayer", None, None), {"axes": ("sublayer", None), "group": "vector"}
        shape = (S, self.n * self.cfg.d_model, sum(sizes))
        self.phi = param(key, shape, phi, axes=wide, group="mixing")
        self.scale = param(None, (S, len(sizes)), SCALE, **vector)
        self.base = param(None, base_Sm.shape, lambda *_: base_Sm, **vector)

    @property
    def projection(self) -> Float[Array, "nD m"]:
        """What a sublayer's normalised streams are multiplied by."""
        return self.phi[...]

    def prepare(self, state, site):
        z_mBT = project(state.carry, self.projection, self.cfg.norm_eps)
        own = recomputed(self._weights, z_mBT, self.scale[...], self.base[...])
        return state._replace(own=own)

    def _weights(self, z_mBT, scale, base) -> Mix:
        z, b = (jax.lax.split(x, self.sizes(self.cfg)) for x in (z_mBT, base))
        return self.mix(*map(affine, z, scale, b))

    @classmethod
    def projection_params(cls, cfg) -> int:
        """Of phi, base and scale, over all sublayers."""
        n, sizes = cls.options(cfg).n_streams, cls.sizes(cfg)
        return cfg.n_sublayers * (n * cfg.d_model * sum(sizes) + sum(sizes) + len(sizes))


def affine(z: Float[Array, "m B T"], scale: Array, base: Float[Array, "m"]):
    """scale * z + base."""
    return scale * z + base[:, None, None]


def uniform_logit(n: int) -> float:
    """b with sigmoid(b) = 1/n, and 0 for a single stream."""
    return -log(max(n - 1, 1))


def init_head(residual: MultiStream, key: jax.Array) -> None:
    """Gives a learned readout its parameters."""
    n, D = residual.n, residual.cfg.d_model
    residual.head_phi = param(key, (n * D, n), normal, axes=(None, None), group="mixing")
    residual.head_scale = param(None, (), SCALE, axes=(), group="vector")
    residual.head_base = param(None, (n,), uniform_logit(n), axes=(None,), group="vector")


def head(residual: MultiStream, state: State) -> Float[Array, "B T D"]:
    """sum_s w_s x_s, w = sigmoid(scale * Norm(vec(x)) phi + base) + epsilon, one weight a token."""
    z_nBT = project(state.carry, residual.head_phi[...], residual.cfg.norm_eps)
    w_nBT = jax.nn.sigmoid(affine(z_nBT, residual.head_scale[...], residual.head_base[...]))
    return recomputed(weighted_sum, unstack(w_nBT + EPSILON), state.carry)


def head_params(cfg, n: int) -> int:
    """Parameters of the learned readout."""
    return n * cfg.d_model * n + 1 + n


def head_idle(n: int) -> dict[str, str]:
    """Its parameters, where a single stream leaves nothing to weigh."""
    reason = "the final norm undoes a factor on the only stream"
    return {f"head_{name}": reason for name in ("phi", "scale", "base")} if n == 1 else {}


def head_flops(cfg, n: int) -> int:
    """Of the learned readout."""
    return projection_flops(cfg, n, n) + sum_flops(cfg, n)
