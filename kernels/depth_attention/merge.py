"""Joining reads of disjoint sets of sources, exactly (arXiv 2603.15031, Alg. 1).

A read of no source at all is (0, -inf), and merging with it changes nothing.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernels.depth_attention.varying import varying_together


def merge(
    out_a: Float[Array, "*SBT D"],
    lse_a: Float[Array, "*SBT"],
    out_b: Float[Array, "*SBT D"],
    lse_b: Float[Array, "*SBT"],
) -> tuple[Float[Array, "*SBT D"], Float[Array, "*SBT"]]:
    """The read of the union of two disjoint sets of sources, out [..., D] and lse [...] of each.

    Returns:
      out [..., D] in the dtype of out_a, and lse [...] in fp32.
    """
    out = merge_one(out_a, lse_a, out_b, lse_b)
    both_empty = jnp.isneginf(lse_a) & jnp.isneginf(lse_b)  # where logaddexp has no gradient
    lse = jnp.logaddexp(jnp.where(both_empty, 0.0, lse_a), lse_b)
    return out, jnp.where(both_empty, -jnp.inf, lse)


def merge_one(
    out: Float[Array, "*BT D"],
    lse: Float[Array, "*BT"],
    value: Float[Array, "*BT D"],
    logit: Float[Array, "*BT"],
) -> Float[Array, "*BT D"]:
    """A read that has seen one source more: h = out + sigmoid(logit - lse) (value - out).

    Args:
      out, lse: a read so far, [..., D] and [...].
      value, logit: the source to add, [..., D], and its logit against that read, [...].

    Returns:
      h [..., D] in the dtype of out. Backward keeps no array of width D beyond the arguments.

    Raises:
      ValueError: shapes or dtypes that do not fit.
    """
    given = [(str(x.dtype), x.shape) for x in (out, value, lse, logit)]
    if given[0] != given[1] or given[2] != given[3] or lse.shape != out.shape[:-1]:
        raise ValueError(
            f"merge: reads {given[0]} and {given[1]} with logits {given[2]} and {given[3]} given; "
            "reads of one shape [..., D] and dtype, and fp32 logits [...], are needed."
        )
    return _joined(*varying_together(out, lse, value, logit))


@jax.custom_vjp
def _joined(out, lse, value, logit):
    return _forward(out, lse, value, logit)[0]


def _forward(out, lse, value, logit):
    a, b = out.astype(jnp.float32), value.astype(jnp.float32)
    share = _share(lse, logit)
    return (a + share[..., None] * (b - a)).astype(out.dtype), (out, lse, value, logit)


def _backward(saved, d_h):
    # Without the barrier XLA for TPU shares with forward, and so stores, fp32 copies of these two.
    (out, value), (lse, logit) = jax.lax.optimization_barrier(saved[::2]), saved[1::2]
    share, d_h32 = _share(lse, logit), d_h.astype(jnp.float32)
    apart = value.astype(jnp.float32) - out.astype(jnp.float32)
    d_logit = share * (1 - share) * jnp.sum(d_h32 * apart, axis=-1)
    d_out = ((1 - share)[..., None] * d_h32).astype(out.dtype)
    d_value = (share[..., None] * d_h32).astype(value.dtype)
    return d_out, -d_logit, d_value, d_logit


def _share(lse, logit):
    both_empty = jnp.isneginf(lse) & jnp.isneginf(logit)
    return jax.nn.sigmoid(jnp.where(both_empty, 0.0, logit - lse))


_joined.defvjp(_forward, _backward)
