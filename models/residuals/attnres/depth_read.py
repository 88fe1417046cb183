"""One read of all its sources, with what Table 4 of arXiv 2603.15031 takes away or changes.

Plain JAX, for every combination of the options; the default ones have kernels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

from models.linear import linear
from models.residuals.arithmetic import inverse_rms, rms_norm
from models.residuals.reading import Reading, softmax_over_sources

HIGHEST = jax.lax.Precision.HIGHEST
QUERY = "attnres_query"
QUERY_AXES = ("embed", None)  # of one read's query_weight


class ReadParams(NamedTuple):
    """Parameters of one read."""

    query: Array  # w [D]; of an input query, its projection [D, D]; without one, n logits [n]
    gain: Float[Array, " D"] | None


def depth_read(
    values: list[Float[Array, "B T D"]], params: ReadParams, options, eps: float
) -> Float[Array, "B T D"]:
    """sum_i alpha_i v_i over n sources, alpha = softmax or sigmoid of w . (RMSNorm(v_i) * g).

    Args:
      values: n sources [B, T, D], the latest last.
      params: of this read.
      options: weights, query, key_norm, key_gain and heads, as in `AttnRes.Options`. With h heads,
        alpha_i is h numbers a token, each of D/h channels; keys are normalised over all D.
      eps: of the key RMSNorm.

    Returns:
      h [B, T, D] in the dtype of the sources; logits, weights and sum in fp32. Backward keeps the
      sources and the query of an input, and makes the rest again.
    """

    # A new function at each call: JAX remembers the trace of one it knows, and `frozen` changes it.
    def read(values, params):
        return taken_apart(values, params, options, eps).mixed()

    policy = jax.checkpoint_policies.save_only_these_names(QUERY)
    return jax.checkpoint(read, policy=policy)(values, params)


def taken_apart(
    values: Sequence[Float[Array, "B T D"]], params: ReadParams, options, eps: float
) -> Reading:
    """What `depth_read` mixes; it has the same arguments."""
    if options.query == "none":
        return Reading(values, params.query.reshape(-1, 1, 1, 1))
    squash = jax.nn.sigmoid if options.weights == "sigmoid" else softmax_over_sources
    return Reading(values, _logits(values, params, options, eps), squash, params.query)


def _logits(values, params: ReadParams, options, eps: float) -> Float[Array, "n B T C"]:
    query = params.query
    if options.query == "input":
        normed_BTD = rms_norm(values[-1].astype(jnp.float32), eps)
        query = checkpoint_name(linear(normed_BTD, query, *QUERY_AXES), QUERY)
    if params.gain is not None:
        query = query * jnp.broadcast_to(params.gain, query.shape)
    query = query.reshape(*query.shape[:-1], options.heads, -1)

    def logit(v_BTD) -> Float[Array, "B T C"]:
        v_BTCH = _by_head(v_BTD, options.heads)
        dot_BTC = jnp.einsum("...ch,...ch->...c", v_BTCH, query, precision=HIGHEST)
        return dot_BTC * inverse_rms(v_BTD, eps)[..., None] if options.key_norm else dot_BTC

    return jnp.stack([logit(v) for v in values])


def _by_head(v_BTD, heads: int) -> Float[Array, "B T C H"]:
    return v_BTD.astype(jnp.float32).reshape(*v_BTD.shape[:-1], heads, -1)
