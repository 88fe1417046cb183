"""Runs a kernel on each device's own tokens, wherever batch and sequence are sharded.

XLA cannot partition a Pallas call (for TPU it refuses to). Tokens are independent of each other, so
that the call goes into a `shard_map` over the token dimensions; what sums over tokens, the queries'
gradient, is added over devices.

Every array carries a label, one letter a dimension: `t` stands for all token dimensions, `n` for
sources, `s` for reads, `d` for d_model.
"""

import math
from collections.abc import Callable

import jax
from jax.sharding import NamedSharding, PartitionSpec


def device_local(
    fn: Callable,
    args: list[jax.Array],
    arg_labels: list[str],
    out_labels: list[str],
    sharding: NamedSharding | None,
) -> list[jax.Array]:
    """`fn(args)` where fn wants tokens flat in one dimension, and args have them in any shape.

    Args:
      fn: takes and returns lists of arrays, with one token dimension where the label says `t`.
      args: arrays; the first one's leading dimensions are the token dimensions.
      arg_labels, out_labels: one label an array; an output without `t` is a sum over tokens.
      sharding: of the token dimensions; None on one device, or inside a shard_map.

    Returns:
      fn's results with the token dimensions of the arguments.
    """

    def flat(*args):
        tokens = args[0].shape[:-1]
        one = (math.prod(tokens),)
        args = [_with_tokens(x, label, one) for x, label in zip(args, arg_labels, strict=True)]
        outs = zip(fn(args), out_labels, strict=True)
        return [_with_tokens(x, label, tokens) for x, label in outs]

    if sharding is None:
        return flat(*args)
    n_token_dims = args[0].ndim - 1
    tokens = (*sharding.spec, *[None] * n_token_dims)[:n_token_dims]
    axes = [axis for dim in tokens if dim for axis in (dim if isinstance(dim, tuple) else (dim,))]

    def local(*args):
        outs = zip(flat(*args), out_labels, strict=True)
        return [x if "t" in label or not axes else jax.lax.psum(x, axes) for x, label in outs]

    def specs(labels):
        dims = ([tokens if c == "t" else (None,) for c in label] for label in labels)
        return [PartitionSpec(*(axis for dim in label for axis in dim)) for label in dims]

    arg_specs, out_specs = specs(arg_labels), specs(out_labels)
    run = jax.shard_map(
        local, mesh=sharding.mesh, in_specs=tuple(arg_specs), out_specs=out_specs, check_vma=False
    )
    return run(*args)


def _with_tokens(x, label, tokens):
    """x with its token dimensions reshaped to `tokens`."""
    at = label.find("t")
    if at < 0:
        return x
    after = len(label) - at - 1
    return x.reshape(*x.shape[:at], *tokens, *x.shape[x.ndim - after :])
