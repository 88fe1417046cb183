"""The head and its loss in one, a chunk of tokens at a time: logits never exist whole.

The training loss is a sum over tokens, so that its gradient is computed together with it, from the
same logits, and only scaled in backward: three matrix products a token and none twice.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int

from models.linear import layout
from models.sharding import mesh_axes

HEAD = ("embed", "vocab")  # logical axes
MAX_LOGITS = 2**28  # at once on one device: 1 GiB in fp32


def nll(
    x_BTD: Float[Array, "B T D"], head_DV: Float[Array, "D V"], targets_BT: Int[Array, "B T"]
) -> Float[Array, "B T"]:
    """Next-token losses in nats, in fp32; not to be differentiated, which `nll_sum` is for."""
    zero_BT = jnp.zeros(targets_BT.shape, jnp.float32)
    where = layout(x_BTD, head_DV, *HEAD)
    return _run(x_BTD, head_DV, targets_BT, zero_BT, where, gradients=False)


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
    return _nll_sum(x_BTD, head_DV, targets_BT, weights_BT, layout(x_BTD, head_DV, *HEAD))


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def _nll_sum(x_BTD, head_DV, targets_BT, weights_BT, where):
    nll_BT = _run(x_BTD, head_DV, targets_BT, weights_BT, where, gradients=False)
    return jnp.sum(nll_BT * weights_BT)


def _forward(x_BTD, head_DV, targets_BT, weights_BT, where):
    nll_BT, dx_BTD, d_head_DV = _run(x_BTD, head_DV, targets_BT, weights_BT, where, gradients=True)
    return jnp.sum(nll_BT * weights_BT), (dx_BTD, d_head_DV, nll_BT)


def _backward(where, saved, scale):
    dx_BTD, d_head_DV, nll_BT = saved
    return scale.astype(dx_BTD.dtype) * dx_BTD, scale * d_head_DV, None, scale * nll_BT


_nll_sum.defvjp(_forward, _backward)


def _run(x_BTD, head_DV, targets_BT, weights_BT, where, gradients: bool):
    """`_local` on each device's tokens and share of the vocabulary."""
    args = (x_BTD, head_DV.astype(x_BTD.dtype), targets_BT, weights_BT)
    if where is None:
        return _local(*args, gradients=gradients)
    tokens, stored, used = (sharding.spec for sharding in where)
    x = PartitionSpec(*tokens, None)

    def local(*args):
        out = _local(*args, gradients=gradients, vocab_axes=mesh_axes([used[1]]))
        if not gradients:
            return out
        nll_BT, dx_BTD, d_head_DV = out
        return nll_BT, dx_BTD, _sum_into(d_head_DV, stored, mesh_axes(tokens))

    return jax.shard_map(
        local,
        mesh=where.stored.mesh,
        in_specs=(x, used, tokens, tokens),
        out_specs=(tokens, x, stored) if gradients else tokens,
        check_vma=False,
    )(*args)


def _sum_into(d_head_DV, stored, axes):
    """The sum over mesh axes; of those that split the rows of the stored head, a share."""
    # Rows of the head that tokens are not split over would have to be cut out, not summed.
    assert set(mesh_axes([stored[0]])) <= set(axes), (
        "what splits d_model of weights splits the batch"
    )
    for axis in axes:
        if axis in mesh_axes([stored[0]]):
            d_head_DV = jax.lax.psum_scatter(d_head_DV, axis, scatter_dimension=0, tiled=True)
        else:
            d_head_DV = jax.lax.psum(d_head_DV, axis)
    return d_head_DV


def _local(x_BTD, head_DV, targets_BT, weights_BT, *, gradients, vocab_axes=()):
    """nll [B, T], or (nll, its weighted sum's dx, and d_head in fp32), of one device's tokens."""
    (D, V), tokens = head_DV.shape, targets_BT.shape
    n_tokens = targets_BT.size
    fitting = (
        n for n in range(1, n_tokens) if n_tokens % n == 0 and n_tokens // n * V <= MAX_LOGITS
    )
    n = next(fitting, n_tokens)
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
    p_NV = jnp.exp(logits_NV - lse_N1)
    d_logits_NV = jnp.where(is_target_NV, p_NV - 1, p_NV) * weights_N[:, None]
    d_logits_NV = d_logits_NV.astype(x_ND.dtype)
    dx_ND = over_vocab(d_logits_NV @ head_DV.T, jax.lax.psum)
    d_head_DV = jnp.dot(x_ND.T, d_logits_NV, preferred_element_type=jnp.float32)
    return nll_N, dx_ND, d_head_DV
