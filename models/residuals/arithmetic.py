"""Arithmetic that residual connections share: weights in fp32, and one rounding of the result."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from models.residuals.base import frozen


def scaled(weight: Array, x_BTD: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
    """weight * x in fp32; a weight of shape [], [D], [B, T] (one a token) or [B, T, D]."""
    return _broadcast(frozen(weight)) * x_BTD.astype(jnp.float32)


def added(x_BTD: Float[Array, "B T D"], *terms_BTD) -> Float[Array, "B T D"]:
    """x + sum_i terms[i] in fp32, in the dtype of x."""
    terms = [term.astype(jnp.float32) for term in terms_BTD]
    return sum(terms, x_BTD.astype(jnp.float32)).astype(x_BTD.dtype)


def weighted_sum(
    weights: Sequence[Array], values: Sequence[Float[Array, "B T D"]]
) -> Float[Array, "B T D"]:
    """sum_i weights[i] * values[i], in the dtype of the values; weights as in `scaled`."""
    terms = [scaled(w, v) for w, v in zip(weights, values, strict=True)]
    return sum(terms[1:], terms[0]).astype(values[0].dtype)


def rms_norm(
    x: Float[Array, "*BT D"], eps: float, gain_D: Float[Array, "D"] | None = None
) -> Float[Array, "*BT D"]:
    """x / rms(x) over the last axis, times a gain if there is one, in the dtype of x."""
    normed = x.astype(jnp.float32) * inverse_rms(x, eps)[..., None]
    if gain_D is not None:
        normed = normed * jnp.expand_dims(gain_D, tuple(range(x.ndim - 1)))
    return normed.astype(x.dtype)


def inverse_rms(x: Float[Array, "*BT D"], eps: float) -> Float[Array, "*BT"]:
    """1 / rms(x) over the last axis, in fp32."""
    mean = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1)
    return frozen(jax.lax.rsqrt(mean + eps))


def causal_convolution(
    x_BTD: Float[Array, "B T D"], taps_kD: Float[Array, "k D"]
) -> Float[Array, "B T D"]:
    """out[t] = sum_i taps[i] x[t - k + 1 + i] for each channel, zeros before the start; in fp32."""
    k, T = len(taps_kD), x_BTD.shape[1]
    padded = jnp.pad(x_BTD.astype(jnp.float32), ((0, 0), (k - 1, 0), (0, 0)))
    return sum(scaled(taps_kD[i], padded[:, i : i + T]) for i in range(k))


def gelu(x: Array) -> Array:
    """x times the normal distribution's function of x, exact.

    By erf: erfc, which jax.nn.gelu takes, is some sixty operations.
    """
    return x * frozen(0.5 * (1 + jax.lax.erf(x * 0.5**0.5)))


def unstack(x: Array, axis: int = 0) -> list[Array]:
    """What lies along an axis; unlike indexing's, its transpose is one concatenation."""
    parts = jax.lax.split(x, [1] * x.shape[axis], axis=axis % x.ndim)
    return [jnp.squeeze(part, axis) for part in parts]


def _broadcast(weight: Array) -> Array:
    if weight.ndim == 1:  # [D]
        return weight[None, None]
    return weight[..., None] if weight.ndim == 2 else weight  # [B, T]
