"""The public operation, and the check of its arguments."""

from collections.abc import Sequence
from dataclasses import replace
from numbers import Real

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jaxtyping import Array, Float

from kernels.depth_attention import reference, vjp
from kernels.depth_attention.implementations import BACKENDS, choose
from kernels.depth_attention.pallas import Pallas
from kernels.depth_attention.varying import varying_together


def depth_attention(
    values: Sequence[Float[Array, "*BT D"]],
    queries: Float[Array, "S D"],
    gain: Float[Array, "S D"],
    *,
    eps: float = 1e-6,
    norm_gain: Float[Array, "S D"] | None = None,
    save_scores: bool = False,
    stacked: bool = True,
    implementation: str | None = None,
    sharding: NamedSharding | None = None,
) -> tuple:
    """S reads of n sources: out_s = sum_i softmax_i(w_s . RMSNorm_{g_s}(v_i)) v_i.

    No 1/sqrt(D), no temperature, values not normalised (arXiv 2603.15031, Eq. 4 to 6); logits,
    softmax and sum in fp32, one cast at the end.

    Args:
      values: n >= 1 arrays [..., D] of one shape and dtype (bf16, fp16 or fp32), never stacked.
      queries: pseudo-queries w, [S, D].
      gain: key-norm gains g, [S, D].
      eps: of the key RMSNorm, and of the RMSNorm that `norm_gain` asks for.
      norm_gain: gains of a following RMSNorm, [S, D].
      save_scores: keep n * (1 + S) fp32 scalars a token for backward, rather than computing them
        again.
      stacked: False gives the S reads as a tuple of arrays [..., D], which spares whoever uses them
        one by one, and their cotangents, a copy.
      implementation: one of `IMPLEMENTATIONS`; None takes the best for `jax.default_backend()`, or
        warns why it cannot. Name it when compiling for hardware that is not here.
      sharding: of the leading dimensions of the sources over several devices, for the Pallas
        implementations, which XLA cannot partition by itself; None inside a shard_map.

    Returns:
      out [S, ..., D] in the dtype of the sources and lse [S, ...] in fp32, the log-sum-exp of the
      logits, by which partial reads are merged. With `norm_gain`, RMSNorm(out) * norm_gain
      [S, ..., D] is the third.

    Raises:
      ValueError: no source; shapes or dtypes that do not fit; an unknown implementation, or one
        that cannot take these shapes.
    """
    if hasattr(values, "ndim"):
        raise ValueError(
            f"depth_attention: values is one array {values.shape}; a sequence of arrays [..., D] "
            "is needed: put a single source into a list."
        )
    values = tuple(values)
    check(values, queries, gain, norm_gain, eps, sharding)
    queries = queries.astype(jnp.float32) * gain.astype(jnp.float32)
    if norm_gain is not None:
        norm_gain = norm_gain.astype(jnp.float32)
    name = choose(values, queries, implementation)
    if name == "reference":
        out, lse, *normed = reference.depth_attention(values, queries, eps=eps, norm_gain=norm_gain)
        return (out, lse, *normed) if stacked else (tuple(out), lse, *map(tuple, normed))
    queries, norm_gain, *values = varying_together(queries, norm_gain, *values)
    module = BACKENDS[name]
    if isinstance(module, Pallas):
        module = replace(module, sharding=sharding)
    out, lse, normed = vjp.attend(
        module, float(eps), bool(save_scores), stacked, tuple(values), queries, norm_gain
    )
    return (out, lse) if norm_gain is None else (out, lse, normed)


def check(values, queries, gain, norm_gain, eps, sharding) -> None:
    """Refuses what no implementation can take.

    Raises:
      ValueError: says what was given and what is needed.
    """
    if not values:
        raise ValueError("depth_attention: no source given; at least one is needed.")
    arrays = [*values, queries, gain, *([] if norm_gain is None else [norm_gain])]
    if strangers := {type(x).__name__ for x in arrays if not hasattr(x, "dtype")}:
        raise ValueError(
            f"depth_attention: arrays are needed, but these were given: {', '.join(strangers)}."
        )
    if isinstance(eps, jax.Array) or not isinstance(eps, Real) or not eps > 0:
        raise ValueError(f"depth_attention: eps is {eps!r}; a number above 0 is needed.")
    if not isinstance(sharding, NamedSharding | None):
        raise ValueError(
            f"depth_attention: sharding is a {type(sharding).__name__}; "
            "NamedSharding(mesh, PartitionSpec(...)) of the token dimensions is needed."
        )
    kinds = sorted({(str(v.dtype), v.shape) for v in values})
    if len(kinds) > 1:
        raise ValueError(
            "depth_attention: sources must share one shape and dtype, but these were given: "
            f"{kinds}."
        )
    dtype, shape = values[0].dtype, values[0].shape
    if dtype not in (jnp.bfloat16, jnp.float16, jnp.float32):
        raise ValueError(f"depth_attention: sources are {dtype}; bf16, fp16 or fp32 is needed.")
    if not shape or not shape[-1]:
        raise ValueError(
            f"depth_attention: sources have shape {shape}; [..., D] with D >= 1 is needed."
        )
    for name, given in (("queries", queries), ("gain", gain), ("norm_gain", norm_gain)):
        if given is None:
            continue
        n_reads = queries.shape[0] if queries.ndim == 2 else "S"
        if given.ndim != 2 or given.shape != (n_reads, shape[-1]) or not given.shape[0]:
            raise ValueError(
                f"depth_attention: {name} has shape {given.shape}; [S, D] with S >= 1 and D = "
                f"{shape[-1]}, the width of the sources, is needed"
                + ("." if name == "queries" else f", with S = {n_reads} as in queries.")
            )
