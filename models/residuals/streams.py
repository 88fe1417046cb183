"""What residual connections of several parallel streams share.

The state is a tuple of n arrays [B, T, D], never one stacked array: sums over streams are then
elementwise, and XLA fuses them. Mixing weights have the streams first, [n, B, T] and [n, n, B, T].
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float
from pydantic import Field

from models.linear import linear
from models.residuals import io
from models.residuals.arithmetic import weighted_sum
from models.residuals.base import Residual, State

SCALE = 0.01  # initial factor of everything that depends on the input


class Mix(NamedTuple):
    """Weights of one sublayer, each [B, T] (or [], where they do not depend on the input)."""

    pre: Sequence[Array]  # h = sum_s pre[s] x_s
    post: Sequence[Array]  # x'_k = post[k] y + sum_j comb[j][k] x_j
    comb: Sequence[Sequence[Array]] | None  # None: the identity


class MultiStream(Residual):
    """h = sum_s pre_s x_s; x'_k = post_k f(h) + sum_j comb_jk x_j; all x_k start as embedding.

    Subclasses make the weights, a `Mix`, in `prepare`.
    """

    class Options(Residual.Options):
        """n_streams: how many streams run side by side."""

        n_streams: int = Field(default=4, ge=1, le=16)

    family = "streams"

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        self.n = self.options(cfg).n_streams

    def init(self, x_BTD):
        return State(history=(), carry=(x_BTD,) * self.n)

    def read(self, state, site):
        return recomputed(weighted_sum, state.own.pre, state.carry)

    def write(self, state, site, y_BTD):
        _, post, comb = state.own
        streams = recomputed(_written, post, comb, y_BTD, state.carry)
        return state._replace(carry=streams)

    def readout(self, state):
        return weighted_sum([jnp.float32(1)] * self.n, state.carry)

    def streams(self, state):
        return state.carry

    def stream_mixing(self, state):
        comb = state.own.comb
        return np.eye(self.n, dtype=np.float32) if comb is None else comb

    @classmethod
    def io_per_token(cls, cfg):
        return io.total(io.hyper_connections(cfg.d_model, cls.options(cfg).n_streams))

    @classmethod
    def saved_activations(cls, cfg):
        n, ends = cls.options(cfg).n_streams, 2  # the embedding, which is all streams, and the sum
        if cls.remat(cfg) == "none":
            inputs_and_outputs = 2 * cfg.n_sublayers
            return ends + n * (cfg.n_sublayers - 1) + inputs_and_outputs
        return ends + n * (cfg.n_layers - 1)


def _written(post, comb, y_BTD, streams):
    """post[k] y + sum_j comb[j][k] x_j for each k; x_k itself where comb is None."""
    one = jnp.float32(1)
    written = []
    for k, x_BTD in enumerate(streams):
        weights = [one] if comb is None else [row[k] for row in comb]
        kept = [x_BTD] if comb is None else streams
        written.append(weighted_sum([post[k], *weights], [y_BTD, *kept]))
    return tuple(written)


def project(
    streams: Sequence[Float[Array, "B T D"]], phi: Float[Array, "nD m"], eps: float
) -> Float[Array, "m B T"]:
    """Norm(vec(x)) @ phi in fp32, where vec(x) is the streams of a token end to end.

    Backward keeps the streams, and a few numbers a token.
    """
    policy = jax.checkpoint_policies.save_only_these_names("projection")
    return jax.checkpoint(partial(_project, eps=eps), policy=policy, prevent_cse=False)(
        tuple(streams), phi
    )


def _project(streams, phi, *, eps):
    n = len(streams)
    parts = jax.lax.split(phi, [len(phi) // n] * n)
    wide = [x_BTD.astype(jnp.float32) for x_BTD in streams]
    square_BT = sum(jnp.sum(jnp.square(x), axis=-1) for x in wide) / len(phi)
    z_BTm = sum(linear(x, part, None, None) for x, part in zip(wide, parts, strict=True))
    # The norm is one number a token, so that it can follow the product.
    square_BT, z_BTm = checkpoint_name((square_BT, z_BTm), "projection")
    return jnp.moveaxis(z_BTm, -1, 0) * jax.lax.rsqrt(square_BT + eps)[None]


def recomputed(f: Callable, *args):
    """f(*args), of which backward keeps the arguments and makes the rest again.

    For much that is made of little, and so that no copy in fp32 is kept of a stream in bfloat16.
    """
    # A new function at each call: JAX remembers the trace of one it knows, and `frozen` changes it.
    return jax.checkpoint(lambda *args: f(*args), prevent_cse=False)(*args)


def home(cfg, n: int) -> Float[Array, "S n"]:
    """One at stream l mod n of sublayer l: without it, streams that start alike stay alike."""
    return jax.nn.one_hot(jnp.arange(cfg.n_sublayers) % n, n)


def projection_flops(cfg, n: int, m: int) -> int:
    """Of `project`: the sum of squares and the product."""
    return n * cfg.d_model * (2 + 2 * m)


def sum_flops(cfg, n: int) -> int:
    """Of one weighted sum of n arrays."""
    return (2 * n - 1) * cfg.d_model


def mixing_flops(cfg, n: int) -> int:
    """Of a sublayer's read, and its write where every stream is a sum of all, less PreNorm's."""
    return sum_flops(cfg, n) + n * sum_flops(cfg, n + 1) - cfg.d_model
