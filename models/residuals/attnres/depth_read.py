"""One read of all its sources, with what Table 4 of arXiv 2603.15031 takes away or changes.

Plain JAX, for every combination of the options; the default ones have kernels.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

from models.linear import linear
from models.residuals.arithmetic import inverse_rms, rms_norm
from models.residuals.base import frozen

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
        if options.query == "none":
            logits_nBTC = params.query.reshape(-1, 1, 1, 1)
        else:
            logits_nBTC = _logits(values, params, options, eps)
        squash = jax.nn.sigmoid if options.weights == "sigmoid" else _softmax_over_sources
        weights_nBTC = squash(frozen(logits_nBTC))
        # Weights are spread over channels, rather than sources cut into heads: over the latter XLA
        # for CPU makes the sum once for each that uses it, the following norm's statistic too.
        size = values[0].shape[-1] // weights_nBTC.shape[-1]
        weights_nBTD = (jnp.repeat(w, size, axis=-1) for w in weights_nBTC)
        terms = (w * v.astype(jnp.float32) for w, v in zip(weights_nBTD, values, strict=True))
        return sum(terms).astype(values[0].dtype)

    policy = jax.checkpoint_policies.save_only_these_names(QUERY)
    return jax.checkpoint(read, policy=policy)(values, params)


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


def _softmax_over_sources(logits_nBTC):
    return jax.nn.softmax(logits_nBTC, axis=0)
