"""One differentiation rule for every implementation of `base.py`."""

from functools import partial

import jax
import jax.numpy as jnp

from kernels.depth_attention.reference import normalise


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def attend(implementation, eps, save_scores, stacked, values, queries, norm_gain):
    """(out, lse, normed or None) by the module `implementation`.

    Args:
      save_scores: keep 1/rms and logits for backward rather than computing them again from the
        sources, which backward reads in any case.
      stacked: out and normed as arrays [S, ..., D] rather than as S arrays.
    """
    result = implementation.forward(values, queries, eps=eps, norm_gain=norm_gain, stacked=stacked)
    return result.out, result.lse, result.normed


def _forward(implementation, eps, save_scores, stacked, values, queries, norm_gain):
    out, lse, normed, scores = implementation.forward(
        values, queries, eps=eps, norm_gain=norm_gain, save_scores=save_scores, stacked=stacked
    )
    return (out, lse, normed), (values, queries, norm_gain, out, lse, scores)


def _backward(implementation, eps, save_scores, stacked, saved, cotangents):
    values, queries, norm_gain, out, lse, scores = saved
    d_out, d_lse, d_normed = cotangents
    d_norm_gain = None
    if norm_gain is not None:
        reads = zip(out, norm_gain, d_out, d_normed, strict=True)
        d_out, d_norm_gain = zip(*(_through_norm(*r, eps=eps) for r in reads), strict=True)
        d_out, d_norm_gain = jnp.stack(d_out) if stacked else d_out, jnp.stack(d_norm_gain)
    d_values, d_queries = implementation.backward(
        values, queries, out, lse, scores, d_out, d_lse, eps=eps
    )
    return d_values, d_queries, d_norm_gain


def _through_norm(out, gain, d_out, d_normed, *, eps):
    """d_out with what comes through the RMSNorm of one read, and the gradient of its gain."""
    _, vjp = jax.vjp(partial(normalise, eps=eps), out.astype(jnp.float32), gain)
    d_more, d_gain = vjp(d_normed.astype(jnp.float32))
    return (d_out.astype(jnp.float32) + d_more).astype(d_out.dtype), d_gain


attend.defvjp(_forward, _backward)
