"""What the TPU (Mosaic) kernels share."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl


def over_lanes(D: int, C: int, body: Callable, carry):
    """Folds body(lanes, carry) over D, C lanes at a time and then the remainder."""

    def full(c, carry):
        return body(pl.ds(pl.multiple_of(c * C, C), C), carry)

    carry = lax.fori_loop(0, D // C, full, carry) if D >= C else carry
    return body(pl.ds(D - D % C, D % C), carry) if D % C else carry


def row_sum(x_RC):
    """[R, 1]."""
    return jnp.sum(x_RC, axis=1, keepdims=True)
