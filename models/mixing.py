"""The depth-mixing matrix of a model: how much of each source the input of each sublayer holds."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from models.depth import walk
from models.residuals.base import QKV, frozen_weights
from models.taps import Tapped
from models.transformer import Transformer


def mixing_matrix(model: Transformer, tokens_BT: Int[Array, "B T"]) -> Float[Array, "S+1 S+1"]:
    """M[l, i], the contribution of source i to the input of sublayer l (arXiv 2603.15031, Eq. 10).

    Source 0 is the embedding, source i the output of sublayer i - 1; the last row is the readout.
    With the mixing weights of these tokens held fixed, inputs are linear in the sources: h_l =
    sum_i A_li v_i, and M[l, i] is A_li v_i along v_i, <A_li v_i, v_i> / <v_i, v_i>, averaged over
    the tokens. Where attention reads three inputs, it is their mean.

    Args:
      model: whose residual connection marks its weights with `frozen`; of one that does not, what
        is found is the sensitivity to a source, weights included.
      tokens_BT: token numbers.

    Raises:
      ValueError: the model is not unrolled: `scan` must be false and `remat` none.
    """
    if model.cfg.scan or model.cfg.remat != "none":
        raise ValueError("a depth-mixing matrix needs a model with scan false and remat none")
    x_BTD = model.embed[tokens_BT].astype(model.cfg.dtype)
    sources = _sources(model, x_BTD)
    n = len(sources)

    def inputs(weights):
        """What is read, with each source multiplied by its weight and otherwise as it was."""
        outputs, found = iter(range(1, n)), []

        def tap(x, y):
            found.append(sum(x) / len(x) if isinstance(x, QKV) else x)
            i = next(outputs)
            return (weights[i] * sources[i]).astype(y.dtype)

        with frozen_weights():
            first = (weights[0] * sources[0]).astype(x_BTD.dtype)
            found.append(walk(model.residual, first, Tapped(model.layers, tap)))
        return found

    # Forward derivatives, as the transpose of backward ones: kernels have rules for those alone.
    found, pullback = jax.vjp(inputs, jnp.ones(n))
    _, push = jax.vjp(lambda cotangents: pullback(cotangents)[0], [0 * h for h in found])
    columns = []
    for i in range(n):
        (changes,) = push(jnp.zeros(n).at[i].set(1.0))
        columns.append(jnp.stack([_along(change, sources[i]) for change in changes]))
    return jnp.stack(columns, axis=1)


def _sources(model: Transformer, x_BTD) -> list[Array]:
    found = [x_BTD]

    def tap(x, y):
        found.append(y)
        return y

    walk(model.residual, x_BTD, Tapped(model.layers, tap))
    return found


def _along(change_BTD, source_BTD) -> Float[Array, ""]:
    a, b = (x.astype(jnp.float32) for x in (change_BTD, source_BTD))
    return jnp.mean(jnp.sum(a * b, -1) / jnp.sum(b * b, -1))
