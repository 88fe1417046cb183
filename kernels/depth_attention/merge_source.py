"""One source more in a read, scored and merged in one pass: the second phase of a block's reads."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jaxtyping import Array, Float

from kernels.depth_attention import merge_tpu
from kernels.depth_attention.api import _MODULES, choose
from kernels.depth_attention.device_local import varying_like
from kernels.depth_attention.merge import merge_one
from kernels.depth_attention.scored import score


def merge_source(
    out: Float[Array, "*BT D"],
    lse: Float[Array, "*BT"],
    value: Float[Array, "*BT D"],
    query: Float[Array, " D"],
    *,
    eps: float = 1e-6,
    implementation: str | None = None,
    sharding: NamedSharding | None = None,
) -> Float[Array, "*BT D"]:
    """A read that has seen one source more: `merge_one` of the source and its `score`.

    h = out + sigmoid(z - lse) (value - out) with z = query . value / sqrt(mean(value^2) + eps), in
    fp32 with one cast at the end.

    Args:
      out: a read so far, [..., D] (bf16, fp16 or fp32).
      lse: log-sum-exp of its logits, fp32 [...]. Where it is +inf, the source is not there: h is
        out, and no gradient goes to the source, the query or lse.
      value: the source to add, [..., D] in the dtype of out.
      query: that read's pseudo-query times key gain, [D].
      eps: of the key RMSNorm.
      implementation: as in `depth_attention`. "pallas_tpu" is a kernel, by which every array
        crosses memory once in each direction, and backward keeps the arguments only; the others
        are the plain form in JAX.
      sharding: as in `depth_attention`.

    Returns:
      h [..., D] in the dtype of out.

    Raises:
      ValueError: shapes or dtypes that do not fit; an unknown implementation, or one that cannot
        take these shapes.
    """
    check(out, lse, value, query)
    query = query.astype(jnp.float32)
    name = choose((out, value), query[None], implementation)
    lse, value, query = (varying_like(out, x) for x in (lse, value, query))
    if name == "pallas_tpu":
        return _merge(replace(_MODULES[name], sharding=sharding), eps, out, lse, value, query)
    return merge_one(out, lse, value, score(value, query[None], eps=eps)[0])


def check(out, lse, value, query) -> None:
    """Refuses what no implementation can take.

    Raises:
      ValueError: says what was given and what is needed.
    """
    if (out.shape, out.dtype) != (value.shape, value.dtype):
        raise ValueError(
            f"merge_source: out is {out.dtype} {out.shape} and value {value.dtype} {value.shape}; "
            "one shape and dtype is needed."
        )
    if out.dtype not in (jnp.bfloat16, jnp.float16, jnp.float32):
        raise ValueError(
            f"merge_source: out and value are {out.dtype}; bf16, fp16 or fp32 is needed."
        )
    if not out.shape:
        raise ValueError("merge_source: out and value are scalars; [..., D] is needed.")
    if (lse.shape, lse.dtype) != (out.shape[:-1], jnp.float32):
        raise ValueError(
            f"merge_source: lse is {lse.dtype} {lse.shape}; float32 {out.shape[:-1]}, one a token "
            "of out, is needed."
        )
    if query.shape != out.shape[-1:]:
        raise ValueError(
            f"merge_source: query has shape {query.shape}; [D] with D = {out.shape[-1]}, the width "
            "of out, is needed."
        )


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _merge(pallas, eps, out, lse, value, query):
    def flat(args):
        return [merge_tpu.forward(*args, eps=eps, interpret=pallas.interpret)]

    (h,) = pallas.run(flat, [out, lse, value, query], ["td", "t", "td", "d"], ["td"])
    return h


def _forward(pallas, eps, *args):
    return _merge(pallas, eps, *args), args


def _backward(pallas, eps, args, d_h):
    def flat(args):
        return list(merge_tpu.backward(*args, eps=eps, interpret=pallas.interpret))

    labels = ["td", "t", "td", "d"]
    return tuple(pallas.run(flat, [*args, d_h], [*labels, "td"], labels))


_merge.defvjp(_forward, _backward)
