"""The head and its loss in one, a chunk of tokens at a time: logits never exist whole.

The training loss is a sum over tokens, so that its gradient is computed together with it, from the
same logits, and only scaled in backward: three matrix products a token and none twice.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int

from models.linear import layout
from models.sharding import place, sharding_of

MAX_LOGITS = 2**28  # at once on one device: 1 GiB in fp32


class Plan(NamedTuple):
    """How tokens and vocabulary are split; hashable, since a custom_vjp takes it as static."""

    tokens: jax.sharding.NamedSharding | None  # [B, T]
    x: jax.sharding.NamedSharding | None  # [B, T, D]
    stored: jax.sharding.NamedSharding | None  # the head [D, V]
    used: jax.sharding.NamedSharding | None


def nll(
    x_BTD: Float[Array, "B T D"], head_DV: Float[Array, "D V"], targets_BT: Int[Array, "B T"]
) -> Float[Array, "B T"]:
    """Next-token losses in nats, in fp32; not to be differentiated, which `nll_sum` is for."""
    zero_BT = jnp.zeros(targets_BT.shape, jnp.float32)
    return _run(x_BTD, head_DV, targets_BT, zero_BT, _plan(x_BTD, head_DV), gradients=False)


def nll_sum(
    x_BTD: Float[Array, "B T D"],
    head_DV: Float[Array, "D V"],
    targets_BT: Int[Array, "B T"],
    weights_BT: Float[Array, "B T"],
) -> Float[Array, ""]:
    """Sum of weights times next-token losses, in nats, in fp32.

    Args:
      x_BTD: what the head sees, after the final norm.
      head_DV: in fp32; used in the dtype of x, its gradient summed in fp32.
      targets_BT: token numbers.
      weights_BT: fp32.
    """
    return _nll_sum(x_BTD, head_DV, targets_BT, weights_BT, _plan(x_BTD, head_DV))


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def _nll_sum(x_BTD, head_DV, targets_BT, weights_BT, plan):
    nll_BT = _run(x_BTD, head_DV, targets_BT, weights_BT, plan, gradients=False)
    return jnp.sum(nll_BT * weights_BT)


def _forward(x_BTD, head_DV, targets_BT, weights_BT, plan):
    nll_BT, dx_BTD, d_head_DV = _run(x_BTD, head_DV, targets_BT, weights_BT, plan, gradients=True)
    return jnp.sum(nll_BT * weights_BT), (dx_BTD, d_head_DV, nll_BT)


def _backward(plan, saved, scale):
    dx_BTD, d_head_DV, nll_BT = saved
    return scale.astype(dx_BTD.dtype) * dx_BTD, scale * d_head_DV, None, scale * nll_BT


_nll_sum.defvjp(_forward, _backward)


def _plan(x_BTD, head_DV) -> Plan:
    B, T, _ = x_BTD.shape
    tokens = sharding_of((B, T), "batch", "sequence")
    return Plan(
        tokens,
        sharding_of(x_BTD.shape, "batch", "sequence", None),
        *layout(head_DV, "embed", "vocab"),
    )


def _run(x_BTD, head_DV, targets_BT, weights_BT, plan: Plan, gradients: bool):
    """`_local` on each device's tokens and share of the vocabulary."""
    args = (x_BTD, head_DV.astype(x_BTD.dtype), targets_BT, weights_BT)
    if plan.tokens is None:
        return _local(*args, gradients=gradients)
    args = [
        place(*pair)
        for pair in zip(args, (plan.x, plan.used, plan.tokens, plan.tokens), strict=True)
    ]
    token_axes = [axis for dim in plan.tokens.spec for axis in _names(dim)]
    scattered = [axis for axis in _names(plan.stored.spec[0]) if axis in token_axes]

    def local(*args):
        out = _local(*args, gradients=gradients, vocab_axes=_names(plan.used.spec[1]))
        if not gradients:
            return out
        nll_BT, dx_BTD, d_head_DV = out
        for axis in token_axes:
            if axis in scattered:
                d_head_DV = jax.lax.psum_scatter(d_head_DV, axis, scatter_dimension=0, tiled=True)
            else:
                d_head_DV = jax.lax.psum(d_head_DV, axis)
        return nll_BT, dx_BTD, d_head_DV

    tokens, x, used = plan.tokens.spec, plan.x.spec, plan.used.spec
    d_head = PartitionSpec(tuple(scattered) or None, used[1])
    return jax.shard_map(
        local,
        mesh=plan.tokens.mesh,
        in_specs=(x, used, tokens, tokens),
        out_specs=(tokens, x, d_head) if gradients else tokens,
        check_vma=False,
    )(*args)


def _names(dim) -> tuple[str, ...]:
    """The mesh axes of one dimension of a PartitionSpec."""
    return () if dim is None else (dim,) if isinstance(dim, str) else tuple(dim)


def _local(x_BTD, head_DV, targets_BT, weights_BT, *, gradients, vocab_axes=()):
    """nll [B, T], or (nll, its weighted sum's dx, and d_head in fp32), of one device's tokens."""
    (D, V), tokens = head_DV.shape, targets_BT.shape
    n_tokens = targets_BT.size
    n = next(
        n for n in range(1, n_tokens + 1) if n_tokens % n == 0 and n_tokens // n * V <= MAX_LOGITS
    )
    first = jax.lax.axis_index(vocab_axes) * V if vocab_axes else 0
    chunks = (
        x_BTD.reshape(n, n_tokens // n, D),
        targets_BT.reshape(n, -1) - first,
        weights_BT.reshape(n, -1),
    )

    def add(d_head_DV, chunk):
        nll_N, dx_ND, d_chunk_DV = _chunk(head_DV, *chunk, gradients, vocab_axes)
        return d_head_DV + d_chunk_DV, (nll_N, dx_ND)

    if n == 1:
        d_head_DV, (nll, dx) = add(0.0, [x[0] for x in chunks])
    else:
        zero = jnp.zeros((D, V), jnp.float32) if gradients else 0.0
        d_head_DV, (nll, dx) = jax.lax.scan(add, zero, chunks)
    nll_BT = nll.reshape(tokens)
    return (nll_BT, dx.reshape(x_BTD.shape), d_head_DV) if gradients else nll_BT


def _chunk(head_DV, x_ND, targets_N, weights_N, gradients, vocab_axes):
    """Of N tokens: losses and, or zeros, the gradients of their weighted sum."""
    V = head_DV.shape[1]
    over_vocab = (lambda x, reduce: reduce(x, vocab_axes)) if vocab_axes else (lambda x, _: x)
    logits_NV = jnp.dot(x_ND, head_DV, preferred_element_type=jnp.float32)
    top_N1 = over_vocab(jnp.max(logits_NV, axis=1, keepdims=True), jax.lax.pmax)
    total_N1 = over_vocab(jnp.sum(jnp.exp(logits_NV - top_N1), axis=1, keepdims=True), jax.lax.psum)
    lse_N1 = top_N1 + jnp.log(total_N1)
    # A target of another device's share of the vocabulary counts there.
    is_target_NV = targets_N[:, None] == jnp.arange(V)[None]
    target_N1 = over_vocab(
        jnp.sum(jnp.where(is_target_NV, logits_NV, 0), axis=1, keepdims=True), jax.lax.psum
    )
    nll_N = (lse_N1 - target_N1)[:, 0]
    if not gradients:
        return nll_N, 0.0, 0.0
    d_logits_NV = (jnp.exp(logits_NV - lse_N1) - is_target_NV) * weights_N[:, None]
    d_logits_NV = d_logits_NV.astype(x_ND.dtype)
    dx_ND = over_vocab(d_logits_NV @ head_DV.T, jax.lax.psum)
    d_head_DV = jnp.dot(x_ND.T, d_logits_NV, preferred_element_type=jnp.float32)
    return nll_N, dx_ND, d_head_DV
