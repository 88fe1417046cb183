"""What the GPU (Triton) kernels share: access to tiles that may overhang."""

import functools
from typing import NamedTuple

import jax.numpy as jnp
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array

F32 = jnp.float32


class Axis(NamedTuple):
    """Of a tile: where along one dimension of an array its elements are."""

    index: Array  # [size, 1] or [1, size]
    mask: Array | None  # where not all of them exist


def make_axis(start, size, extent, *, axis):
    """Indices of a tile along one axis, and which of them exist where not all do."""
    index = jnp.expand_dims(jnp.arange(size), 1 - axis) + start
    return Axis(index, None if extent % size == 0 else index < extent)


def just(t):
    """One token, as an axis of a [1, 1] tile."""
    return Axis(jnp.full((1, 1), t), None)


def only_where(condition, axis):
    """An axis that exists under a condition only."""
    mask = jnp.full(axis.index.shape, condition)
    return Axis(axis.index, mask if axis.mask is None else mask & axis.mask)


def _at(index):
    """Index and mask of a tile from its axes."""
    masks = [i.mask for i in index if isinstance(i, Axis) and i.mask is not None]
    mask = functools.reduce(jnp.logical_and, masks) if masks else None
    return tuple(i.index if isinstance(i, Axis) else i for i in index), mask


def read(ref, *index, cast=True):
    """A tile, with zeros where it overhangs, in fp32."""
    index, mask = _at(index)
    other = None if mask is None else jnp.zeros((), ref.dtype)
    tile = plgpu.load(ref.at[index], mask=mask, other=other)
    return tile.astype(F32) if cast else tile


def write(ref, tile, *index):
    """A tile, except where it overhangs, in the dtype of `ref`."""
    index, mask = _at(index)
    plgpu.store(ref.at[index], tile.astype(ref.dtype), mask=mask)
