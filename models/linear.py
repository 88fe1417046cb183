"""x @ w: weights gathered in the dtype of x, gradients summed in fp32 to where the weights lie."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jaxtyping import Array, Float

from models.sharding import place, sharding_of


class Layout(NamedTuple):
    """Where the arrays of one matrix product lie; hashable, as custom_vjp wants what is static."""

    tokens: NamedSharding  # [B, T]
    stored: NamedSharding  # the weight [D, F]
    used: NamedSharding  # the weight, whole along "embed"


def layout(x: Float[Array, "B T D"], w: Float[Array, "D F"], *axes: str) -> Layout | None:
    """Of x @ w, where w has these logical axes; None on a single device."""
    stored = sharding_of(w.shape, *axes)
    if stored is None:
        return None
    used = sharding_of(w.shape, *(None if axis == "embed" else axis for axis in axes))
    return Layout(sharding_of(x.shape[:2], "batch", "sequence"), stored, used)


def linear(x: Float[Array, "*BT D"], w: Float[Array, "D F"], *axes: str) -> Float[Array, "*BT F"]:
    """x @ w for x [..., D] in any leading shape, [B, T, D] on several devices.

    Args:
      x: split over devices as "batch" and "sequence", or whole.
      w: in fp32, used in the dtype of x; its gradient is summed in fp32.
      axes: the logical axes of w.
    """
    return _linear(x, w, layout(x, w, *axes))


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _linear(x, w, layout):
    return x @ _used(w, x.dtype, layout)


def _used(w, dtype, layout):
    w = w.astype(dtype)  # first, so that half as many bytes are gathered
    return w if layout is None else place(w, layout.used)


def _forward(x, w, layout):
    return _linear(x, w, layout), (x, w)


def _backward(layout, saved, dy):
    x, w = saved
    dx = dy @ _used(w, dy.dtype, layout).T
    if layout is None:
        # JAX's own rule, and any contraction over both B and T, makes XLA for CPU copy x and dy
        # into transposed layout: a third of an MLP's training step. One flat dimension does not.
        x, dy = (a.reshape(-1, a.shape[-1]) for a in (x, dy))
    tokens = tuple(range(x.ndim - 1))
    dw = jnp.tensordot(x, dy, axes=(tokens, tokens), preferred_element_type=jnp.float32)
    return dx, dw.astype(w.dtype) if layout is None else place(dw.astype(w.dtype), layout.stored)


_linear.defvjp(_forward, _backward)
