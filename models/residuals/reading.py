"""A read over depth, taken apart into what it weighs and how much."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from models.residuals.base import frozen


def softmax_over_sources(logits_nBTC: Float[Array, "n B T C"]) -> Float[Array, "n B T C"]:
    """Weights that sum to one over n sources."""
    return jax.nn.softmax(logits_nBTC, axis=0)


class Reading(NamedTuple):
    """h = sum_i weights_i values_i over n sources, in the order of the variant's `sources`.

    A logit of -inf is of a source that is not there. C groups of D / C channels have weights of
    their own.
    """

    values: Sequence[Float[Array, "B T D"]]
    logits_nBTC: Float[Array, "n B T C"]
    squash: Callable = softmax_over_sources  # logits -> weights
    query: Array | None = None  # the parameters that logits are made with, where there are any

    @property
    def weights_nBTC(self) -> Float[Array, "n B T C"]:
        """In fp32."""
        return self.squash(frozen(self.logits_nBTC))

    def mixed(self) -> Float[Array, "B T D"]:
        """h in the dtype of the sources; the sum is in fp32."""
        weights_nBTC, D = self.weights_nBTC, self.values[0].shape[-1]
        # Weights are spread over channels, rather than sources cut into heads: over the latter XLA
        # for CPU makes the sum once for each that uses it, the following norm's statistic too.
        size = D // weights_nBTC.shape[-1]
        weights_nBTD = (jnp.repeat(w, size, axis=-1) for w in weights_nBTC)
        terms = (w * v.astype(jnp.float32) for w, v in zip(weights_nBTD, self.values, strict=True))
        return sum(terms).astype(self.values[0].dtype)
