"""Depth attention as Pallas TPU (Mosaic) kernels: every source crosses HBM once in each direction.

The grid runs over tiles of T tokens. A tile of all n sources sits in VMEM, so that the softmax over
depth and the weighted sum are two loops over the same resident blocks; each source is an operand of
its own. Inside a tile, a loop takes R tokens at a time and inner loops C lanes of D at a time, to
bound code and registers. Scalars of a token live in [R, n] matrices with tokens on sublanes, where
they meet the sources without a transposition.

All products are formed on the vector unit, in fp32. In the compiler's schedules for ten sources the
matrix unit saves a tenth of the cycles of six reads and nothing for three: what it gains goes into
moving its results to where the softmax wants them.
"""

import functools
from collections.abc import Sequence

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float

from kernels.depth_attention.base import Forward, Reads, Scores
from kernels.depth_attention.mosaic import over_lanes, row_sum
from kernels.depth_attention.pallas import total_bytes
from kernels.depth_attention.tiling_tpu import Tiling, unfit
from kernels.depth_attention.varying import shape_like

F32 = jnp.float32


def unsupported(values: Sequence[Float[Array, "N D"]], queries: Float[Array, "S D"]) -> str | None:
    """Why these kernels cannot take the sources [N, D] and queries [S, D], or None if they can."""
    (N, D), dtype = values[0].shape, values[0].dtype
    if dtype not in (jnp.bfloat16, F32):
        return f"Mosaic kernels take bfloat16 or float32 sources, not {dtype}."
    if D % 8:
        return f"D = {D} is not a multiple of 8."
    if N == 0:
        return "there are no tokens."
    return unfit(len(values), queries.shape[0], D, dtype.itemsize)


def forward(
    values: Sequence[Float[Array, "N D"]],
    queries: Float[Array, "S D"],
    *,
    eps: float,
    norm_gain: Float[Array, "S D"] | None = None,
    save_scores: bool = False,
    stacked: bool = True,
    interpret=False,
) -> Forward:
    """S reads of n sources in one pass over them.

    Args:
      values: n arrays [N, D] of one dtype, bfloat16 or float32; any N >= 1.
      queries: pseudo-query times key gain, fp32 [S, D].
      eps: of the key RMSNorm, and of the fused RMSNorm of the output.
      norm_gain: fp32 [S, D]; if given, `normed` = RMSNorm(out_s) * norm_gain_s is returned too.
      save_scores: also return what `backward` would otherwise compute again.
      stacked: reads in one array [S, N, D], rather than in S arrays [N, D].
      interpret: False, True or `pltpu.InterpretParams`, as in `pl.pallas_call`.
    """
    n, (N, D), S, dtype = len(values), values[0].shape, queries.shape[0], values[0].dtype
    has_norm = norm_gain is not None
    tiling = Tiling.forward(n, S, N, D, dtype.itemsize, normed=has_norm)
    T = tiling.tile
    shape = shape_like(values[0])

    def scalars(width):
        return pl.BlockSpec((T, width), lambda t: (t, 0)), shape((N, width), F32)

    source = pl.BlockSpec((T, D), lambda t: (t, 0), pipeline_mode=pl.Buffered(tiling.buffers_in))
    whole = pl.BlockSpec((S, D), lambda t: (0, 0))
    if stacked:
        read = pl.BlockSpec((S, T, D), lambda t: (0, t, 0)), shape((S, N, D), dtype)
    else:
        read = [pl.BlockSpec((T, D), lambda t: (t, 0))] * S, [shape((N, D), dtype)] * S
    outputs = dict(out=read, lse=scalars(S))
    if has_norm:
        outputs |= dict(normed=read)
    if save_scores:
        outputs |= dict(rstd=scalars(n), logits=scalars(S * n))
    out_specs, out_shape = ({k: o[part] for k, o in outputs.items()} for part in range(2))
    results = pl.pallas_call(
        functools.partial(_forward_kernel, eps=eps, rows=tiling.rows, lanes=tiling.lanes),
        grid=(pl.cdiv(N, T),),
        in_specs=([source] * n, whole, whole if has_norm else None),
        out_specs=out_specs,
        out_shape=out_shape,
        scratch_shapes=[pltpu.VMEM((S, tiling.rows, D), F32)] if has_norm else [],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel",), vmem_limit_bytes=tiling.vmem
        ),
        cost_estimate=pl.CostEstimate(
            flops=N * D * (n * (4 * S + 2) + 5 * S * has_norm),
            bytes_accessed=total_bytes(values, queries, norm_gain, out_shape),
            transcendentals=N * (n * (S + 1) + S * (1 + has_norm)),
        ),
        interpret=interpret,
        name="depth_attention_forward",
    )(list(values), queries, norm_gain)
    scores = None
    if save_scores:
        logits_NSn = results["logits"].reshape(N, S, n)
        scores = Scores(results["rstd"].T, logits_NSn.transpose(2, 1, 0))
    out, normed = results["out"], results.get("normed")
    if not stacked:
        out, normed = tuple(out), normed and tuple(normed)
    return Forward(out, results["lse"].T, normed, scores)


def backward(
    values: Sequence[Float[Array, "N D"]],
    queries: Float[Array, "S D"],
    out: Reads | None,
    lse: Float[Array, "S N"] | None,
    scores: Scores | None,
    d_out: Reads,
    d_lse: Float[Array, "S N"],
    *,
    eps: float,
    interpret=False,
) -> tuple[tuple[Float[Array, "N D"], ...], Float[Array, "S D"]]:
    """Gradients of `forward` in one pass over the sources.

    Args:
      values, queries, eps, interpret: as in `forward`.
      out, lse: not read, None will do. With all sources at hand, the softmax and sum_i p_is dp_is
        cost less than a load, and a lone source gets p = 1 and dp - delta = 0 to the last bit.
      scores: of `forward`, or None to compute them again.
      d_out: cotangents [S, N, D], or S of [N, D], in the dtype of the sources.
      d_lse: cotangents [S, N], fp32.

    Returns:
      d_values, n arrays [N, D] in the dtype of the sources, and d_queries, fp32 [S, D]: a sum in a
      fixed order over this call's tokens.
    """
    n, (N, D), S, dtype = len(values), values[0].shape, queries.shape[0], values[0].dtype
    tiling = Tiling.backward(n, S, N, D, dtype.itemsize)
    T = tiling.tile
    tiles = pl.cdiv(N, T)
    # Two chunks of tiles, for the two TensorCores of a megacore device; each sums its own dq.
    chunks = min(2, tiles)
    steps = pl.cdiv(tiles, chunks)
    shape = shape_like(values[0])

    def tile(p, t):  # where the tiles run out, stay on the last one: nothing moves, nor is computed
        return jnp.minimum(p * steps + t, tiles - 1)

    def by_source(buffers):
        mode = pl.Buffered(buffers)
        return [pl.BlockSpec((T, D), lambda p, t: (tile(p, t), 0), pipeline_mode=mode)] * n

    def scalars(width):
        return pl.BlockSpec((T, width), lambda p, t: (tile(p, t), 0))

    if isinstance(d_out, tuple):
        by_read = (pl.BlockSpec((T, D), lambda p, t: (tile(p, t), 0)),) * S
    else:
        by_read = pl.BlockSpec((S, T, D), lambda p, t: (0, tile(p, t), 0))
    if scores is not None:
        logits_NSn = scores.logits.transpose(2, 1, 0)
        scores = (scores.rstd.T, logits_NSn.reshape(N, S * n))
    out_shape = ([shape((N, D), dtype)] * n, shape((chunks, S, D), F32))
    d_values, d_queries = pl.pallas_call(
        functools.partial(
            _backward_kernel, eps=eps, rows=tiling.rows, lanes=tiling.lanes, tokens=N
        ),
        grid=(chunks, steps),
        in_specs=[
            by_source(tiling.buffers_in),
            pl.BlockSpec((S, D), lambda p, t: (0, 0)),
            None if scores is None else (scalars(n), scalars(S * n)),
            by_read,
            scalars(S),
        ],
        out_specs=(
            by_source(tiling.buffers_out),
            pl.BlockSpec((None, S, D), lambda p, t: (p, 0, 0)),
        ),
        out_shape=out_shape,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=tiling.vmem
        ),
        cost_estimate=pl.CostEstimate(
            flops=n * N * D * (10 * S + 2 + (2 * S + 2) * (scores is None)),
            bytes_accessed=total_bytes(values, queries, scores, d_out, d_lse, out_shape),
            transcendentals=n * N * (S + (scores is None)),
        ),
        interpret=interpret,
        name="depth_attention_backward",
    )(list(values), queries, scores, d_out, d_lse.T)
    return tuple(d_values), jnp.sum(d_queries, axis=0)


def _forward_kernel(v_nTD, q_SD, gain_SD, results, *wide_SRD, eps, rows, lanes):
    (T, D), S, R, n = v_nTD[0].shape, q_SD.shape[0], rows, len(v_nTD)
    out_sTD, normed_sTD = (_by_read(results.get(name), S) for name in ("out", "normed"))

    @pl.loop(0, T // R)
    def _(k):
        row = pl.ds(pl.multiple_of(k * R, R), R)
        rstd_Rn, z_SRn, _ = _score(v_nTD, row, q_SD, [], eps=eps, lanes=lanes)
        top_SR = [jnp.max(z, axis=1, keepdims=True) for z in z_SRn]
        e_SRn = [jnp.exp(z - top) for z, top in zip(z_SRn, top_SR, strict=True)]
        total_SR = [row_sum(e) for e in e_SRn]
        p_SRn = [e / total for e, total in zip(e_SRn, total_SR, strict=True)]

        def mix(lane, square_SR):
            out_SRC = [0.0] * S
            for i, v in enumerate(v_nTD):
                x_RC = v[row, lane].astype(F32)
                out_SRC = [o + p[:, i : i + 1] * x_RC for o, p in zip(out_SRC, p_SRn, strict=True)]
            for s, o in enumerate(out_SRC):
                out_sTD[s][row, lane] = o.astype(out_sTD[s].dtype)
                if wide_SRD:
                    wide_SRD[0][s, :, lane] = o
            return [a + row_sum(o * o) for a, o in zip(square_SR, out_SRC, strict=True)]

        square_SR = over_lanes(D, lanes, mix, [jnp.zeros((R, 1), F32)] * S)

        def norm(lane, _):
            for s, square in enumerate(square_SR):
                normed = wide_SRD[0][s, :, lane] * lax.rsqrt(square / D + eps)
                normed *= gain_SD[s : s + 1, lane]
                normed_sTD[s][row, lane] = normed.astype(normed_sTD[s].dtype)

        if wide_SRD:
            over_lanes(D, lanes, norm, None)
        lse_RS = jnp.zeros((R, S), F32)
        for s in range(S):
            lse_RS = _put(lse_RS, s, top_SR[s] + jnp.log(total_SR[s]))
        results["lse"][row, :] = lse_RS
        if "logits" in results:
            results["rstd"][row, :] = rstd_Rn
            for s in range(S):
                results["logits"][row, s * n : (s + 1) * n] = z_SRn[s]


def _backward_kernel(
    v_nTD, q_SD, scores, dout, dlse_TS, dv_nTD, dq_SD, *, eps, rows, lanes, tokens
):
    (T, D), S, R, n = v_nTD[0].shape, q_SD.shape[0], rows, len(v_nTD)
    dout_sTD = _by_read(dout, S)
    first = (pl.program_id(0) * pl.num_programs(1) + pl.program_id(1)) * T
    left = jnp.int32(tokens + R - 1) - first
    groups = jnp.clip(lax.div(left, jnp.int32(R)), 0, T // R)  # none where no tile is left

    @pl.when(pl.program_id(1) == 0)
    def _():
        dq_SD[...] = jnp.zeros(dq_SD.shape, F32)

    @pl.loop(0, groups)
    def _(k):
        row = pl.ds(pl.multiple_of(k * R, R), R)
        rstd_Rn, z_SRn, dp_SRn = _score(
            v_nTD, row, None if scores else q_SD, dout_sTD, eps=eps, lanes=lanes
        )
        if scores:
            rstd_Rn = scores[0][row, :]
            z_SRn = [scores[1][row, s * n : (s + 1) * n] for s in range(S)]
        p_SRn, ddot_SRn, radial_Rn = [], [], jnp.zeros((R, n), F32)
        for s in range(S):
            e_Rn = jnp.exp(z_SRn[s] - jnp.max(z_SRn[s], axis=1, keepdims=True))
            p_Rn = e_Rn / row_sum(e_Rn)
            delta_R = row_sum(p_Rn * dp_SRn[s])
            dz_Rn = p_Rn * (dp_SRn[s] - delta_R + dlse_TS[row, s : s + 1])
            p_SRn.append(p_Rn)
            ddot_SRn.append(rstd_Rn * dz_Rn)
            radial_Rn += dz_Rn * z_SRn[s]
        radial_Rn *= rstd_Rn * rstd_Rn / D

        def spread(lane, _):
            g_SRC = [dout_TD[row, lane].astype(F32) for dout_TD in dout_sTD]
            q_S1C = [q_SD[s : s + 1, lane] for s in range(S)]
            dq_SRC = [0.0] * S
            for i in range(n):
                x_RC = v_nTD[i][row, lane].astype(F32)
                dv_RC = -radial_Rn[:, i : i + 1] * x_RC
                for s in range(S):
                    p_R, ddot_R = p_SRn[s][:, i : i + 1], ddot_SRn[s][:, i : i + 1]
                    dv_RC += p_R * g_SRC[s] + ddot_R * q_S1C[s]
                    dq_SRC[s] += ddot_R * x_RC
                dv_nTD[i][row, lane] = dv_RC.astype(dv_nTD[i].dtype)
            for s in range(S):
                if tokens % R:  # rows beyond the last token hold anything, NaN included
                    row_RC = lax.broadcasted_iota(jnp.int32, dq_SRC[s].shape, 0)
                    dq_SRC[s] = jnp.where(row_RC < tokens - first - k * R, dq_SRC[s], 0.0)
                dq_SD[s : s + 1, lane] += jnp.sum(dq_SRC[s], axis=0, keepdims=True)

        over_lanes(D, lanes, spread, None)


def _score(v_nTD, row, q_SD, dout_sTD, *, eps, lanes):
    """1/rms of R tokens of all sources [R, n], their logits and d_out . v, both S times [R, n].

    Without q_SD the first two are empty, without dout_sTD the third.
    """
    (_, D), R, n = v_nTD[0].shape, row.size, len(v_nTD)
    zero_Rn = jnp.zeros((R, n), F32)

    def reduce(lane, sums):
        square_Rn, dot_SRn, dp_SRn = sums
        q_S1C = [q_SD[s : s + 1, lane] for s in range(len(dot_SRn))]
        g_SRC = [dout_TD[row, lane].astype(F32) for dout_TD in dout_sTD]
        for i, v in enumerate(v_nTD):
            x_RC = v[row, lane].astype(F32)
            if q_S1C:
                square_Rn = _put(square_Rn, i, row_sum(x_RC * x_RC))
            dot_SRn = [_put(a, i, row_sum(x_RC * q)) for a, q in zip(dot_SRn, q_S1C, strict=True)]
            dp_SRn = [_put(a, i, row_sum(x_RC * g)) for a, g in zip(dp_SRn, g_SRC, strict=True)]
        return square_Rn, dot_SRn, dp_SRn

    dots = [zero_Rn] * (0 if q_SD is None else q_SD.shape[0])
    dps = [zero_Rn] * len(dout_sTD)
    square_Rn, dot_SRn, dp_SRn = over_lanes(D, lanes, reduce, (zero_Rn, dots, dps))
    rstd_Rn = lax.rsqrt(square_Rn / D + eps)
    return rstd_Rn, [rstd_Rn * dot for dot in dot_SRn], dp_SRn


def _by_read(refs, S):
    """S references [T, D], of that many or of one [S, T, D]."""
    if refs is None or isinstance(refs, list | tuple):
        return refs
    return [refs.at[s] for s in range(S)]


def _put(sums_Rn, i, x_R1):
    """Adds a column to column i."""
    lane_Rn = lax.broadcasted_iota(jnp.int32, sums_Rn.shape, 1)
    return jnp.where(lane_Rn == i, sums_Rn + x_R1, sums_Rn)
