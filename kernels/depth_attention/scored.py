"""Depth attention in two halves: score a source when it is written, mix sources when they are read.

The pseudo-queries are parameters, so a source's logits against *every* later read are known the
moment the source is. That turns all of its dot products, and the RMSNorm statistic they share,
into one GEMM; a read is then a softmax over n scalars a token and one weighted sum.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernels.depth_attention.row_sums import row_sums
from kernels.depth_attention.varying import varying_together

HIGHEST = jax.lax.Precision.HIGHEST  # accelerators round fp32 products to fewer bits otherwise


def score(
    value: Float[Array, "*BT D"], queries: Float[Array, "Q D"], *, eps: float = 1e-6
) -> Float[Array, "Q *BT"]:
    """Logits of one source against Q reads, in fp32.

    Args:
      value: the source v, [..., D].
      queries: pseudo-query times key gain (w * g), one row a read, [Q, D]; only this product is
        identifiable.
      eps: added to mean(v^2) before the inverse square root.

    Returns:
      logits [Q, ...], (w * g) . v / sqrt(mean(v^2) + eps): no 1/sqrt(D), no temperature
      (arXiv 2603.15031, section 3.1).

    Raises:
      ValueError: the source and the queries differ in width.
    """
    if value.shape[-1] != queries.shape[-1]:
        raise ValueError(
            f"score: the source has width {value.shape[-1]} and the queries {queries.shape[-1]}; "
            "both must be d_model."
        )
    return statistics(value, queries.astype(jnp.float32), eps)[1]


def statistics(
    value: Float[Array, "*BT D"], queries: Float[Array, "Q D"], eps: float
) -> tuple[Float[Array, "*BT"], Float[Array, "Q *BT"]]:
    """1/rms [...] of one source and its logits [Q, ...]: one read, one dot product a query."""
    v = value.astype(jnp.float32)
    rstd = jax.lax.rsqrt(jnp.mean(jnp.square(v), axis=-1) + eps)
    return rstd, jnp.einsum("...d,qd->q...", v, queries, precision=HIGHEST) * rstd[None]


def mix(
    values: Sequence[Float[Array, "*BT D"]], logits: Sequence[Float[Array, "*BT"]]
) -> Float[Array, "*BT D"]:
    """Softmax-weighted sum of n sources, weights and sum in fp32, one cast at the end.

    Args:
      values: n arrays [..., D]; they are never stacked, so that none is copied.
      logits: n arrays [...], fp32.

    Returns:
      out [..., D] in the dtype of the sources.

    Raises:
      ValueError: no source, not one logit array a source, or shapes or dtypes that do not fit.
    """
    values, logits = list(values), list(logits)
    if len(values) != len(logits) or not values:
        raise ValueError(
            f"mix: {len(values)} sources and {len(logits)} logits given; "
            "one logit array a source, and at least one source, are needed."
        )
    given = [sorted({(str(x.dtype), x.shape) for x in arrays}) for arrays in (values, logits)]
    if len(given[0]) > 1 or len(given[1]) > 1 or logits[0].shape != values[0].shape[:-1]:
        raise ValueError(
            f"mix: sources {given[0]} and logits {given[1]} given; sources of one shape [..., D] "
            "and dtype, and logits [...], are needed."
        )
    arrays = varying_together(*values, *logits)
    return _mixed(arrays[: len(values)], arrays[len(values) :])


@jax.custom_vjp
def _mixed(values, logits):
    return _forward(values, logits)[0]


def _forward(values, logits):
    logits_nBT = jnp.stack(logits)
    # A softmax, but where all logits are -inf there is no source, and a read of none is 0.
    limits = jnp.finfo(jnp.float32)
    top_1BT = jnp.maximum(jnp.max(logits_nBT, axis=0, keepdims=True), limits.min)
    exp_nBT = jnp.exp(logits_nBT - top_1BT)
    weights_nBT = exp_nBT / jnp.maximum(jnp.sum(exp_nBT, axis=0, keepdims=True), limits.tiny)
    # Without the barrier XLA computes all n weights again inside every kernel that uses one.
    weights_nBT = jax.lax.optimization_barrier(weights_nBT)
    out = sum(
        w[..., None] * v.astype(jnp.float32) for w, v in zip(weights_nBT, values, strict=True)
    )
    return out.astype(values[0].dtype), (values, weights_nBT)


def _backward(saved, d_out):
    values, weights_nBT = saved
    # Without it XLA for TPU shares with forward, and so stores, fp32 copies of the sources.
    values, d_out = jax.lax.optimization_barrier(values), d_out.astype(jnp.float32)
    d_weights = jnp.stack(row_sums([d_out * v.astype(jnp.float32) for v in values]))
    d_logits = weights_nBT * (d_weights - jnp.sum(weights_nBT * d_weights, axis=0, keepdims=True))
    d_logits = jax.lax.optimization_barrier(d_logits)
    d_values = [
        (w[..., None] * d_out).astype(v.dtype) for w, v in zip(weights_nBT, values, strict=True)
    ]
    return d_values, list(d_logits)


_mixed.defvjp(_forward, _backward)
