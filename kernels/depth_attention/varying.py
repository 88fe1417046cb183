"""Which mesh axes an array varies over, inside `shard_map`."""

import functools
from collections.abc import Callable

import jax


def shape_like(value: jax.Array) -> Callable:
    """ShapeDtypeStruct that varies over the mesh axes that `value` does (inside `shard_map`)."""
    axes = jax.typeof(value).manual_axis_type
    return functools.partial(jax.ShapeDtypeStruct, manual_axis_type=axes)


def varying_like(value: jax.Array, x: jax.Array | None) -> jax.Array | None:
    """x, inside shard_map declared to vary over the mesh axes that `value` varies over.

    The transpose of that declaration is the sum over devices that a gradient of x needs.
    """
    if x is None:
        return None
    of_value, of_x = (jax.typeof(a).manual_axis_type.varying for a in (value, x))
    axes = tuple(of_value - of_x)
    return jax.lax.pcast(x, axes, to="varying") if axes else x
