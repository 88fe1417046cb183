"""x @ w: weights gathered for use in the dtype of x, gradients summed in fp32 where weights lie."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jaxtyping import Array, Float

from models.sharding import place, sharding_of


class Layout(NamedTuple):
    """Of one weight: while it is stored, and while it is used."""

    stored: NamedSharding | None
    used: NamedSharding | None


def layout(w: Float[Array, "D F"], *axes: str) -> Layout:
    """Of a weight with these logical axes: used, it is whole along "embed"."""
    used = (None if axis == "embed" else axis for axis in axes)
    return Layout(sharding_of(w.shape, *axes), sharding_of(w.shape, *used))


def linear(x: Float[Array, "*BT D"], w: Float[Array, "D F"], *axes: str) -> Float[Array, "*BT F"]:
    """x @ w for x [..., D] in any leading shape; w, of these logical axes, in the dtype of x.

    JAX's own rule for dw, and any contraction over both B and T, makes XLA for CPU copy x and dy
    into transposed layout: a third of an MLP's training step. A contraction over one flat
    dimension does not. Elsewhere B and T stay apart, since both may be sharded.
    """
    return _linear(x, w, layout(w, *axes))


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _linear(x, w, layout):
    return x @ place(w.astype(x.dtype), layout.used)


def _forward(x, w, layout):
    return _linear(x, w, layout), (x, w)


def _backward(layout, saved, dy):
    x, w = saved
    dx = dy @ place(w.astype(dy.dtype), layout.used).T
    dw = jax.lax.platform_dependent(x, dy, cpu=_dw_flat, default=_dw)
    return dx, place(dw.astype(w.dtype), layout.stored)


def _dw(x, dy):
    leading = tuple(range(x.ndim - 1))
    return jnp.tensordot(x, dy, axes=(leading, leading), preferred_element_type=jnp.float32)


def _dw_flat(x, dy):
    return _dw(x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1]))


_linear.defvjp(_forward, _backward)
