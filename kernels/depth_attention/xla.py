"""Depth attention in plain JAX with the contract of `base.py`, for tokens of any leading shape.

Nothing is stacked but a few scalars a token. Since it is made of dot products, reductions and
elementwise sums alone, XLA partitions it over any sharding, that of D included.
"""

import jax
import jax.numpy as jnp

from kernels.depth_attention.base import Forward, Scores
from kernels.depth_attention.reference import normalise
from kernels.depth_attention.row_sums import row_sums
from kernels.depth_attention.scored import HIGHEST, statistics


def unsupported(values, queries) -> str | None:
    """None: it takes every shape."""
    return None


def forward(values, queries, *, eps, norm_gain=None, save_scores=False, stacked=True) -> Forward:
    """See `base.py`."""
    rstd, logits_nSBT = _scores(values, queries, eps)
    lse_SBT = jax.nn.logsumexp(logits_nSBT, axis=0)
    weights = jnp.exp(logits_nSBT - lse_SBT[None])
    if len(values) == 1:  # the compiler may round a logit in two ways
        weights = jnp.ones_like(weights)
    weights = jax.lax.optimization_barrier(weights)
    reads = [
        sum(p[s][..., None] * _fp32(v) for p, v in zip(weights, values, strict=True))
        for s in range(len(queries))
    ]
    dtype, together = values[0].dtype, jnp.stack if stacked else tuple
    out, normed = together([read.astype(dtype) for read in reads]), None
    if norm_gain is not None:
        gains = (norm_gain[s] for s in range(len(queries)))
        normed = (normalise(r, g, eps).astype(dtype) for r, g in zip(reads, gains, strict=True))
        normed = together(list(normed))
    return Forward(out, lse_SBT, normed, Scores(rstd, logits_nSBT) if save_scores else None)


def backward(values, queries, out, lse, scores, d_out, d_lse, *, eps):
    """See `base.py`; `out` is not needed, since all weights are at hand."""
    rstd_nBT, logits_nSBT = scores or _scores(values, queries, eps)
    weights = jnp.exp(logits_nSBT - lse[None])
    d_reads = [_fp32(d_out[s]) for s in range(len(queries))]
    products = [d_read * _fp32(v) for v in values for d_read in d_reads]
    d_weights = jnp.stack(row_sums(products)).reshape(weights.shape)
    mean = jnp.sum(weights * d_weights, axis=0)
    d_logits = weights * (d_weights - (mean - d_lse)[None])
    if len(values) == 1:  # not left to how the compiler rounds two sums of which 0 should remain
        d_logits = d_lse[None]
    radial_nBT = jnp.sum(d_logits * logits_nSBT, axis=1) * jnp.square(rstd_nBT) / queries.shape[1]
    weights, ddot_nSBT, radial_nBT = jax.lax.optimization_barrier(
        (weights, d_logits * rstd_nBT[:, None], radial_nBT)
    )
    d_values, d_queries = [], jnp.zeros_like(queries)
    for v, p_SBT, ddot_SBT, radial_BT in zip(values, weights, ddot_nSBT, radial_nBT, strict=True):
        d_v = sum(p_BT[..., None] * d for p_BT, d in zip(p_SBT, d_reads, strict=True))
        d_v += jnp.einsum("s...,sd->...d", ddot_SBT, queries, precision=HIGHEST)
        d_values.append((d_v - radial_BT[..., None] * _fp32(v)).astype(v.dtype))
        tokens = tuple(range(v.ndim - 1))
        d_queries += jnp.tensordot(
            ddot_SBT, _fp32(v), axes=(tuple(t + 1 for t in tokens), tokens), precision=HIGHEST
        )
    return tuple(d_values), d_queries


def _scores(values, queries, eps) -> Scores:
    pairs = [statistics(v, queries, eps) for v in values]
    return Scores(*(jnp.stack(scalars) for scalars in zip(*pairs, strict=True)))


def _fp32(x):
    return x.astype(jnp.float32)
