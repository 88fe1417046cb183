"""Depth attention as its equation reads, differentiated by JAX."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def depth_attention(
    values: Sequence[Float[Array, "*BT D"]],
    queries: Float[Array, "S D"],
    *,
    eps: float,
    norm_gain: Float[Array, "S D"] | None = None,
) -> tuple:
    """out_s = sum_i softmax_i(q_s . v_i / rms(v_i)) v_i, its lse, and the RMSNorm of out, if asked.

    Arguments and results as for `kernels.depth_attention`, with query times gain in one.
    """
    v_nBTD = jnp.stack(values).astype(jnp.float32)
    keys = v_nBTD * jax.lax.rsqrt(jnp.mean(jnp.square(v_nBTD), axis=-1, keepdims=True) + eps)
    highest = jax.lax.Precision.HIGHEST
    logits_nSBT = jnp.einsum("n...d,sd->ns...", keys, queries, precision=highest)
    weights = jax.nn.softmax(logits_nSBT, axis=0)
    out = jnp.einsum("ns...,n...d->s...d", weights, v_nBTD, precision=highest)
    lse, dtype = jax.nn.logsumexp(logits_nSBT, axis=0), values[0].dtype
    if norm_gain is None:
        return out.astype(dtype), lse
    normed = jnp.stack([normalise(o, g, eps) for o, g in zip(out, norm_gain, strict=True)])
    return out.astype(dtype), lse, normed.astype(dtype)


def normalise(
    out_BTD: Float[Array, "*BT D"], gain_D: Float[Array, " D"], eps: float
) -> Float[Array, "*BT D"]:
    """RMSNorm of one read over the last axis, all in fp32."""
    rstd = jax.lax.rsqrt(jnp.mean(jnp.square(out_BTD), axis=-1, keepdims=True) + eps)
    return out_BTD * rstd * jnp.expand_dims(gain_D, tuple(range(out_BTD.ndim - 1)))
