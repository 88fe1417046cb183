"""Depth attention as Pallas GPU (Triton) kernels: one source of a token in registers at a time.

A program walks over a run of tokens and holds whole rows of D_model, padded to a power of two. The
forward pass keeps a running softmax over the sources; the backward pass has each token's lse and
delta_s = dout_s . out_s from the start, so that one visit of a source gives its gradient and its
part of dq. Queries are taken G at a time, in [G, W] tiles; where registers hold fewer than all, the
sources are visited once a group, and come from HBM the first time and from cache afterwards. Every
program sums its own dq over its own tokens in order: no atomics, so results repeat to the bit.
"""

import functools
from collections.abc import Sequence

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Float

from kernels.depth_attention.base import Forward, Reads, Scores
from kernels.depth_attention.pallas import total_bytes
from kernels.depth_attention.tiling_gpu import Plan
from kernels.depth_attention.triton import just, make_axis, only_where, read, write
from kernels.depth_attention.varying import shape_like

F32 = jnp.float32
OPERANDS = 500  # pointers in the 4 KiB of parameters a kernel may have


def unsupported(values: Sequence[Float[Array, "N D"]], queries: Float[Array, "S D"]) -> str | None:
    """Why these kernels cannot take the sources [N, D] and queries [S, D], or None if they can."""
    (N, D), S, dtype = values[0].shape, queries.shape[0], values[0].dtype
    if dtype not in (jnp.bfloat16, jnp.float16, F32):
        return f"sources must be bfloat16, float16 or float32, not {dtype}."
    if 0 in (N, S, D):
        return f"there is nothing to compute for N = {N}, S = {S}, D = {D}."
    if 0 in (Plan.forward(S, N, D).group, Plan.backward(S, N, D).group):
        return f"rows of D = {D} do not fit in the registers of a program; the limit is 8192."
    if 2 * len(values) + 10 > OPERANDS:
        return f"{len(values)} sources are more than a kernel can have operands for."
    return None


def forward(
    values: Sequence[Float[Array, "N D"]],
    queries: Float[Array, "S D"],
    *,
    eps: float,
    norm_gain: Float[Array, "S D"] | None = None,
    save_scores: bool = False,
    stacked: bool = True,
    interpret: bool = False,
) -> Forward:
    """S reads of n sources in one pass over them.

    Args:
      values: n arrays [N, D] of one dtype (bfloat16, float16 or float32), any N >= 1.
      queries: pseudo-query times key gain, fp32 [S, D].
      eps: of the key RMSNorm, and of the fused RMSNorm of the output.
      norm_gain: fp32 [S, D]; if given, `normed` = RMSNorm(out_s) * norm_gain_s is returned too.
      save_scores: also return what `backward` would otherwise compute again.
      stacked: reads in one array [S, N, D], rather than in S arrays [N, D] copied out of it.
      interpret: as in `pl.pallas_call`.
    """
    n, (N, D), S, dtype = len(values), values[0].shape, queries.shape[0], values[0].dtype
    plan = Plan.forward(S, N, D)
    shape = shape_like(values[0])
    wide = shape((S, N, D), dtype)
    out_shape = Forward(
        out=wide,
        lse=shape((S, N), F32),
        normed=None if norm_gain is None else wide,
        scores=Scores(shape((n, N), F32), shape((n, S, N), F32)) if save_scores else None,
    )
    result = pl.pallas_call(
        functools.partial(_forward_kernel, plan=plan, eps=eps),
        # Groups of one run of tokens start together, so that one of them fetches the sources from
        # HBM and the others find them in L2.
        grid=(plan.groups, plan.programs),
        out_shape=out_shape,
        compiler_params=plgpu.CompilerParams(num_warps=plan.warps, num_stages=1),
        cost_estimate=pl.CostEstimate(
            flops=n * N * D * (2 + 4 * S) + S * N * D * (1 if norm_gain is None else 5),
            bytes_accessed=total_bytes(values, queries, norm_gain, out_shape),
            transcendentals=N * (n + 2 * n * S + 2 * S),
        ),
        interpret=interpret,
        name="depth_attention_forward",
    )(list(values), queries, norm_gain)
    if stacked:
        return result
    normed = None if norm_gain is None else tuple(result.normed)
    return result._replace(out=tuple(result.out), normed=normed)


def backward(
    values: Sequence[Float[Array, "N D"]],
    queries: Float[Array, "S D"],
    out: Reads,
    lse: Float[Array, "S N"],
    scores: Scores | None,
    d_out: Reads,
    d_lse: Float[Array, "S N"],
    *,
    eps: float,
    interpret: bool = False,
) -> tuple[tuple[Float[Array, "N D"], ...], Float[Array, "S D"]]:
    """Gradients of `forward` in one pass over the sources.

    Args:
      values, queries, eps, interpret: as in `forward`.
      out, lse, scores: of `forward`; without scores they are computed again.
      d_out: cotangents [S, N, D], or S of [N, D], in the dtype of the sources.
      d_lse: cotangents [S, N], fp32.

    Returns:
      d_values, n arrays [N, D] in the dtype of the sources, and d_queries, fp32 [S, D]: a sum in a
      fixed order over this call's tokens.
    """
    out, d_out = (jnp.stack(x) if isinstance(x, tuple) else x for x in (out, d_out))
    n, (N, D), S, dtype = len(values), values[0].shape, queries.shape[0], values[0].dtype
    plan = Plan.backward(S, N, D)
    shape = shape_like(values[0])
    # The last is where groups of queries add up what each contributes to the sources' gradients.
    sums = shape((plan.programs, n, D), F32) if plan.groups > 1 else None
    out_shape = ([shape((N, D), dtype)] * n, shape((plan.programs, S, D), F32), sums)
    d_values, dq_PSD, _ = pl.pallas_call(
        functools.partial(_backward_kernel, plan=plan, eps=eps, barrier=not interpret),
        grid=(plan.programs,),
        out_shape=out_shape,
        compiler_params=plgpu.CompilerParams(num_warps=plan.warps, num_stages=1),
        cost_estimate=pl.CostEstimate(
            flops=n * N * D * (4 + (8 if scores is not None else 10) * S),
            bytes_accessed=total_bytes(
                values, queries, out, lse, scores, d_out, d_lse, out_shape[:2]
            ),
            transcendentals=N * n * (S + (scores is None)),
        ),
        interpret=interpret,
        name="depth_attention_backward",
    )(list(values), queries, (out, lse, scores), (d_out, d_lse))
    return tuple(d_values), jnp.sum(dq_PSD, axis=0)


def _forward_kernel(v_nND, q_SD, gain_SD, *to, plan, eps):
    to, (N, D), S = Forward(*to), v_nND[0].shape, q_SD.shape[0]
    lane = make_axis(0, plan.width, D, axis=1)
    query = make_axis(pl.program_id(0) * plan.group, plan.group, S, axis=0)
    q_GW = read(q_SD, query, lane)

    def visit(t):
        for i, v_1W in _one_ahead(v_nND, t, lane):
            rstd_11 = lax.rsqrt(_dot(v_1W, v_1W) / D + eps)
            z_G1 = _dot(q_GW, v_1W) * rstd_11
            if i == 0:
                top_G1, total_G1 = z_G1, jnp.ones_like(z_G1)
                sum_GW = jnp.broadcast_to(v_1W, q_GW.shape)
            else:
                new_G1 = jnp.maximum(top_G1, z_G1)
                shrink_G1, e_G1 = jnp.exp(top_G1 - new_G1), jnp.exp(z_G1 - new_G1)
                total_G1 = total_G1 * shrink_G1 + e_G1
                sum_GW = sum_GW * shrink_G1 + e_G1 * v_1W
                top_G1 = new_G1
            if to.scores:
                # Every group writes the same number here.
                write(to.scores.rstd, rstd_11, i, just(t))
                write(to.scores.logits, z_G1, i, query, t)
        out_GW = sum_GW * (1.0 / total_G1)
        write(to.out, out_GW, query, t, lane)
        write(to.lse, top_G1 + jnp.log(total_G1), query, t)
        if gain_SD is not None:
            scale_G1 = lax.rsqrt(_dot(out_GW, out_GW) / D + eps)
            write(to.normed, out_GW * scale_G1 * read(gain_SD, query, lane), query, t, lane)

    _over_tokens(pl.program_id(1), plan, N, lambda t, none: visit(t), None)


def _backward_kernel(
    v_nND, q_SD, saved, cotangents, dv_nND, dq_PSD, sum_PnD, *, plan, eps, barrier
):
    (out_SND, lse_SN, scores), (dout_SND, dlse_SN) = saved, cotangents
    (N, D), S = v_nND[0].shape, q_SD.shape[0]
    program, shared = pl.program_id(0), plan.groups > 1
    lane = make_axis(0, plan.width, D, axis=1)

    def tile(g):
        return make_axis(g * plan.group, plan.group, S, axis=0)

    def visit(t, g, query, q_GW, dq_GW):
        dout_GW = read(dout_SND, query, t, lane)
        delta_G1 = _dot(dout_GW, read(out_SND, query, t, lane))
        lse_G1, dlse_G1 = read(lse_SN, query, t), read(dlse_SN, query, t)
        for i, v_1W in _one_ahead(v_nND, t, lane):
            if scores is None:
                rstd_11 = lax.rsqrt(_dot(v_1W, v_1W) / D + eps)
                z_G1 = _dot(q_GW, v_1W) * rstd_11
            else:
                rstd_11, z_G1 = read(scores.rstd, i, just(t)), read(scores.logits, i, query, t)
            p_G1 = jnp.exp(z_G1 - lse_G1)
            if len(v_nND) == 1:  # it equals out: not left to how the compiler rounds two dots
                dz_G1 = dlse_G1
            else:
                dz_G1 = p_G1 * (_dot(dout_GW, v_1W) - delta_G1 + dlse_G1)
            ddot_G1 = dz_G1 * rstd_11
            radial_11 = jnp.sum(ddot_G1 * z_G1, axis=0, keepdims=True) * rstd_11 / D
            dv_1W = jnp.sum(p_G1 * dout_GW + ddot_G1 * q_GW, axis=0, keepdims=True)
            dv_1W -= radial_11 * v_1W
            dq_GW += ddot_G1 * v_1W
            if shared:
                dv_1W += jnp.where(g > 0, read(sum_PnD, program, i, lane), 0.0)
                write(sum_PnD, dv_1W, program, i, lane)
            write(dv_nND[i], dv_1W, t, only_where(g == plan.groups - 1, lane) if shared else lane)
        return dq_GW

    def visit_by_group(t, none):
        def group(g, none):
            if barrier:  # sums in memory may return to other threads than wrote them
                plgpu.debug_barrier()
            query = tile(g)
            dq_GW = read(dq_PSD, program, query, lane)
            dq_GW = visit(t, g, query, read(q_SD, query, lane), dq_GW)
            write(dq_PSD, dq_GW, program, query, lane)

        lax.fori_loop(0, plan.groups, group, None)

    zero_GW = jnp.zeros((plan.group, plan.width), F32)
    if shared:
        for g in range(plan.groups):
            write(dq_PSD, zero_GW, program, tile(g), lane)
        _over_tokens(program, plan, N, visit_by_group, None)
    else:
        query = tile(0)
        q_GW = read(q_SD, query, lane)
        step = functools.partial(visit, g=0, query=query, q_GW=q_GW)
        dq_GW = _over_tokens(program, plan, N, lambda t, dq: step(t, dq_GW=dq), zero_GW)
        write(dq_PSD, dq_GW, program, query, lane)


def _one_ahead(v_nND, t, lane):
    """Each source of token t, in fp32, while the next one is in flight."""
    ahead_1W = read(v_nND[0], t, lane, cast=False)
    for i, _ in enumerate(v_nND):
        v_1W = ahead_1W.astype(F32)
        if i + 1 < len(v_nND):
            ahead_1W = read(v_nND[i + 1], t, lane, cast=False)
        yield i, v_1W


def _dot(a_GW, b_GW):
    return jnp.sum(a_GW * b_GW, axis=1, keepdims=True)


def _over_tokens(program, plan, N, visit, carry):
    """Folds visit(token, carry) over a program's tokens."""
    first = program * plan.tokens
    return lax.fori_loop(first, jnp.minimum(first + plan.tokens, N), visit, carry)
