"""x @ w with a backward that needs no transposed copy of the activations on CPU."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.custom_vjp
def linear(x: Float[Array, "*BT D"], w: Float[Array, "D F"]) -> Float[Array, "*BT F"]:
    """x @ w for x [..., D] in any leading shape; w is cast to the dtype of x.

    JAX's own rule for dw, and any contraction over both B and T, makes XLA for CPU copy x and dy
    into transposed layout: a third of an MLP's training step. A contraction over one flat
    dimension does not. Elsewhere B and T stay apart, since both may be sharded.
    """
    return x @ w.astype(x.dtype)


def _forward(x, w):
    return linear(x, w), (x, w)


def _backward(saved, dy):
    x, w = saved
    dx = dy @ w.astype(dy.dtype).T
    dw = jax.lax.platform_dependent(x, dy, cpu=_dw_flat, default=_dw)
    return dx, dw.astype(w.dtype)


def _dw(x, dy):
    leading = tuple(range(x.ndim - 1))
    return jnp.tensordot(x, dy, axes=(leading, leading), preferred_element_type=jnp.float32)


def _dw_flat(x, dy):
    return _dw(x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1]))


linear.defvjp(_forward, _backward)
