"""Sums along D of many arrays, in one pass over memory."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def row_sums(products: Sequence[Float[Array, "*BT D"]]) -> list[Float[Array, "*BT"]]:
    """The sum over D of each of n fp32 arrays, as one reduction with n operands.

    Where the arrays are products that share a factor, n reductions would each read it again; of
    one, XLA makes a single loop.
    """
    zeros = (jnp.float32(0),) * len(products)
    dims = (products[0].ndim - 1,)
    return list(jax.lax.reduce(tuple(products), zeros, _add, dimensions=dims))


def _add(a, b):
    return tuple(x + y for x, y in zip(a, b, strict=True))
