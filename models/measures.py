"""What is measured of a model's sublayers: magnitudes, weights over depth, streams, gradients."""

import itertools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from models.layers import Layer
from models.residuals.base import QKV, Residual, Site, State
from models.residuals.reading import Reading

HIGHEST = jax.lax.Precision.HIGHEST


def of_sublayer(
    residual: Residual,
    state: State,
    site: Site,
    x: Float[Array, "B T D"] | QKV,
    y: Float[Array, "B T D"] | None,
) -> dict[str, Array]:
    """What is measured of one sublayer, or of the readout, where `y` is None.

    To be given to `models.depth.observed_walk`; see there for the arguments. All are fp32 scalars,
    but where said otherwise.

    Returns:
      input_rms, max_read: of what it reads; of three separate inputs the root mean square of all
        and the largest norm of any token.
      output_rms: but not of the readout.
      alpha: [n] one weight a source, mean over tokens and groups of channels; alpha_entropy,
        query_norm (NaN where no parameters make a query): where reads attend over depth.
      stream_similarity; mixing [B, T, n, n] for `gains`: of n > 1 streams, where they are mixed.
    """
    ways = [way.astype(jnp.float32) for way in (x if isinstance(x, QKV) else [x])]
    found = {"input_rms": _rms(jnp.stack(ways)), "max_read": _largest(jnp.stack(ways))}
    if residual.sources(residual.cfg):
        found |= _of_reading(residual.reading(state, site))
    if y is None:
        return found
    found["output_rms"] = _rms(y.astype(jnp.float32))
    streams = [stream.astype(jnp.float32) for stream in residual.streams(state)]
    if len(streams) > 1:
        found["stream_similarity"] = _similarity(streams)
    mixing = residual.stream_mixing(state) if len(streams) > 1 else None
    if mixing is not None:
        tokens = streams[0].shape[:2]
        # [from][to] -> [B, T, from, to] -> [B, T, to, from]
        rows = [jnp.stack([jnp.broadcast_to(w, tokens) for w in row], -1) for row in mixing]
        found["mixing"] = jnp.stack(rows, -2).swapaxes(-1, -2)
    return found


def gains(mixing: list[Float[Array, "B T n n"]]) -> Float[Array, " S"]:
    """By how much mixing alone can amplify, by the end, the streams before each sublayer.

    The largest absolute row sum (the infinity norm) of the product of the mixing matrices from that
    sublayer to the last, averaged over tokens: the forward "Amax gain" of arXiv 2512.24880.
    """

    def step(later, one):
        product = jnp.einsum("btij,btjk->btik", later, one, precision=HIGHEST)
        rows_BTn = jnp.sum(jnp.abs(product), axis=-1)
        return product, jnp.mean(jnp.max(rows_BTn, axis=-1))

    identity = jnp.broadcast_to(jnp.eye(mixing[0].shape[-1]), mixing[0].shape)
    return jax.lax.scan(step, identity, jnp.stack(mixing), reverse=True)[1]


def sublayer_norms(layers: dict) -> Float[Array, " S"]:
    """The norm of all parameters of each sublayer.

    Args:
      layers: parameters of the stacked layers, or anything of their structure.

    Raises:
      ValueError: a part that `Layer.PARTS` gives to no sublayer.
    """
    unknown = set(layers) - {name for parts in Layer.PARTS for name in parts}
    if unknown:
        raise ValueError(f"Layer.PARTS gives {', '.join(sorted(unknown))} to no sublayer")
    squares = [
        sum(
            jnp.sum(jnp.square(leaf), axis=tuple(range(1, leaf.ndim)))
            for leaf in jax.tree.leaves([layers.get(name) for name in parts])
        )
        for parts in Layer.PARTS
    ]
    return jnp.sqrt(jnp.stack(squares, axis=1).reshape(-1))


def _of_reading(reading: Reading) -> dict[str, Array]:
    weights_nBTC = reading.weights_nBTC
    total_1BTC = jnp.sum(weights_nBTC, axis=0, keepdims=True)  # of sigmoids any, even zero
    shares_nBTC = weights_nBTC / jnp.maximum(total_1BTC, jnp.finfo(jnp.float32).tiny)
    entropy_BTC = jnp.sum(jax.scipy.special.entr(shares_nBTC), axis=0)
    squares = jnp.nan if reading.query is None else jnp.sum(jnp.square(reading.query))
    return {
        "alpha": jnp.mean(weights_nBTC, (1, 2, 3)),
        "alpha_entropy": jnp.mean(entropy_BTC),
        "query_norm": jnp.sqrt(jnp.float32(squares)),
    }


def _similarity(streams: list[Float[Array, "B T D"]]) -> Float[Array, ""]:
    """Mean cosine over tokens and pairs of streams."""
    units = [x / jnp.sqrt(jnp.sum(jnp.square(x), -1, keepdims=True) + 1e-30) for x in streams]
    pairs = itertools.combinations(units, 2)
    return jnp.mean(jnp.stack([jnp.mean(jnp.sum(a * b, -1)) for a, b in pairs]))


def _rms(x: Array) -> Float[Array, ""]:
    return jnp.sqrt(jnp.mean(jnp.square(x)))


def _largest(x: Float[Array, "*BT D"]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.max(jnp.sum(jnp.square(x), axis=-1)))
