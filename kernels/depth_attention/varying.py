"""Which mesh axes an array varies over, inside `shard_map`."""

import functools
from collections.abc import Callable

import jax


def shape_like(value: jax.Array) -> Callable:
    """ShapeDtypeStruct that varies over the mesh axes that `value` does (inside `shard_map`)."""
    axes = jax.typeof(value).manual_axis_type
    return functools.partial(jax.ShapeDtypeStruct, manual_axis_type=axes)


def varying_together(*arrays: jax.Array | None) -> list[jax.Array | None]:
    """The arrays, each declared to vary over all mesh axes that any of them varies over.

    A rule for gradients needs that, and the transpose of the declaration is the sum over devices
    that a gradient of what varied over fewer needs.
    """
    given = [x for x in arrays if x is not None]
    axes = frozenset().union(*(jax.typeof(x).manual_axis_type.varying for x in given))
    return [None if x is None else _vary(x, axes) for x in arrays]


def varying_like(value: jax.Array, x: jax.Array) -> jax.Array:
    """x, declared to vary over the mesh axes that `value` varies over."""
    return _vary(x, jax.typeof(value).manual_axis_type.varying)


def _vary(x, axes):
    missing = tuple(axes - jax.typeof(x).manual_axis_type.varying)
    return jax.lax.pcast(x, missing, to="varying") if missing else x
