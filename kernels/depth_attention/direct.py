"""Depth attention as its equation reads: the reference form, and the one for a single read."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernels.depth_attention.scored import score


def depth_attention(
    values: Sequence[Float[Array, "*BT D"]],
    queries: Float[Array, "S D"],
    gain: Float[Array, "S D"],
    *,
    eps: float = 1e-6,
) -> tuple[Float[Array, "S *BT D"], Float[Array, "S *BT"]]:
    """S reads of n sources: out_s = sum_i softmax_i(w_s . RMSNorm_{g_s}(v_i)) v_i.

    Args:
      values: n >= 1 arrays [..., D] of one shape and dtype.
      queries: pseudo-queries w, [S, D].
      gain: key-norm gains g, [S, D].
      eps: of the key RMSNorm.

    Returns:
      out [S, ..., D] in the dtype of the sources, and lse [S, ...] in fp32, the log-sum-exp of the
      logits, with which two partial reads can be merged (arXiv 2603.15031, Alg. 1).

    Raises:
      ValueError: no source, or sources of different shapes or dtypes.
    """
    if not values:
        raise ValueError("depth_attention: no source given; at least one is needed.")
    kinds = {(v.shape, str(v.dtype)) for v in values}
    if len(kinds) > 1:
        raise ValueError(
            f"depth_attention: sources must share one shape and dtype, but these were given: "
            f"{sorted(kinds)}."
        )
    logits = jnp.stack([score(v, queries * gain, eps=eps) for v in values])
    weights = jax.nn.softmax(logits, axis=0)
    out = sum(
        w[..., None] * v.astype(jnp.float32)[None] for w, v in zip(weights, values, strict=True)
    )
    return out.astype(values[0].dtype), jax.nn.logsumexp(logits, axis=0)
