"""Parameters that carry what the optimizer and the sharding rules must know about them."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx

# matrix: weight decay, Muon; embedding, and mixing (matrices that compute mixing weights): weight
# decay, never Muon; vector: gains, biases, pseudo-queries and static mixing weights, neither.
Group = Literal["matrix", "embedding", "mixing", "vector"]


def param(
    key: jax.Array | None,
    shape: tuple[int, ...],
    init: Callable | float,
    *,
    axes: tuple[str | None, ...],
    group: Group,
) -> nnx.Param:
    """An fp32 parameter with logical axis names and an optimizer group.

    Args:
      key: PRNG key; None where `init` is a constant.
      shape: as `axes` names it.
      init: an initialiser `(key, shape, dtype)`, or a number to fill with.
      axes: one logical name a dimension, resolved to mesh axes elsewhere. A parameter of a stacked
        layer has one leading dimension more than names.
      group: how the optimizer treats it.
    """
    if callable(init):
        value = init(key, shape, jnp.float32)
    else:
        value = jnp.full(shape, init, jnp.float32)
    return nnx.Param(value, axes=axes, group=group)


def groups(model: nnx.Module) -> dict:
    """The optimizer group of each parameter, as a nested dict shaped like the parameters'."""
    return _each(model, lambda p: p.get_metadata()["group"])


def axes(model: nnx.Module) -> dict:
    """The logical axes of each parameter, one a dimension, shaped like the parameters."""

    def padded(p: nnx.Variable) -> tuple[str | None, ...]:
        axes = p.get_metadata()["axes"]
        return (*[None] * (p.ndim - len(axes)), *axes)  # stacked layers have one dimension more

    return _each(model, padded)


def _each(model: nnx.Module, fact: Callable[[nnx.Variable], Any]) -> dict:
    state = nnx.split(model)[1]
    return nnx.to_pure_dict(
        jax.tree.map(fact, state, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))
    )


def fan_in(scale: float = 1.0) -> Callable:
    """Truncated normal of standard deviation scale / sqrt(first dimension)."""

    def init(key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
        std = scale / shape[0] ** 0.5
        return jax.nn.initializers.truncated_normal(std)(key, shape, dtype)

    return init
