"""Logical axes of activations and weights, resolved to devices by whoever traces the model.

Batch, sequence: rows of the batch and positions, inside a sublayer. Stream: positions of what runs
between the sublayers, so of the sources of depth attention too. Heads, kv_heads, mlp, vocab: widths
that matrix products make or use up. Embed: d_model of a matrix. Features, head: vectors. Sublayer,
layer: rows of which each sublayer or layer is given its own (see models.residuals.base).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax
from jax.sharding import NamedSharding

LOGICAL_AXES = (
    "batch", "sequence", "stream", "heads", "kv_heads", "mlp", "vocab", "embed", "features", "head",
    "sublayer", "layer",
)  # fmt: skip
Axes = tuple[str | None, ...]
# (one logical axis a dimension, shape) -> where the array lies
Resolve = Callable[[Axes, tuple[int, ...]], NamedSharding]

_resolve: ContextVar[Resolve | None] = ContextVar("resolve", default=None)


@contextmanager
def resolved_by(resolve: Resolve | None) -> Iterator[None]:
    """While a model is traced: how its logical axes lie on a mesh; None on a single device."""
    token = _resolve.set(resolve)
    try:
        yield
    finally:
        _resolve.reset(token)


def sharding_of(shape: tuple[int, ...], *axes: str | None) -> NamedSharding | None:
    """Where an array with these logical axes lies; None on a single device."""
    resolve = _resolve.get()
    return resolve and resolve(axes, shape)


def constrain(x: jax.Array, *axes: str | None) -> jax.Array:
    """x, laid out as its logical axes say."""
    return place(x, sharding_of(x.shape, *axes))


def place(x: jax.Array, sharding: NamedSharding | None) -> jax.Array:
    """x, laid out so; x itself where there is nothing to say."""
    return x if sharding is None else jax.lax.with_sharding_constraint(x, sharding)


def mesh_axes(spec: Iterable) -> tuple[str, ...]:
    """All mesh axes that a PartitionSpec, or some dimensions of one, name."""
    named = (() if dim is None else (dim,) if isinstance(dim, str) else dim for dim in spec)
    return tuple(axis for dim in named for axis in dim)
