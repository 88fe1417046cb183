"""`merge_source` as Pallas TPU (Mosaic) kernels: one source joins a read in one pass over both.

The grid runs over tiles of T tokens. Inside a tile, a loop takes R tokens at a time and visits
their rows twice, C lanes of D at a time: once for the sums that give a token's logit, and once for
what depends on them. Scalars of a token are [R, 1], with tokens on sublanes as in the rows they
scale.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float

from kernels.depth_attention import pallas_tpu
from kernels.depth_attention.mosaic import over_lanes, row_sum, shape_like, total_bytes
from kernels.depth_attention.tiling import Tiling

F32 = jnp.float32


def unsupported(out: Float[Array, "N D"], query: Float[Array, " D"]) -> str | None:
    """Why these kernels cannot take a read [N, D] and a query [D], or None if they can.

    As many blocks are held as for one read of two sources.
    """
    return pallas_tpu.unsupported([out, out], jax.ShapeDtypeStruct((1, *query.shape), F32))


def forward(
    out: Float[Array, "N D"],
    lse: Float[Array, " N"],
    value: Float[Array, "N D"],
    query: Float[Array, " D"],
    *,
    eps: float,
    interpret=False,
) -> Float[Array, "N D"]:
    """The read with one source more, h [N, D].

    Args:
      out: the read so far, [N, D], bfloat16 or float32; any N >= 1.
      lse: of its logits, fp32 [N].
      value: the source, [N, D] in the dtype of out.
      query: pseudo-query times key gain, fp32 [D].
      eps: of the key RMSNorm.
      interpret: False, True or `pltpu.InterpretParams`, as in `pl.pallas_call`.

    Raises:
      ValueError: `unsupported` has an objection.
    """
    _check(out, query)
    (N, D), dtype = out.shape, out.dtype
    tiling = Tiling.forward(2, 1, N, D, dtype.itemsize)
    T = tiling.tile
    args = out, lse[:, None], value, query[None]
    out_shape = shape_like(out)((N, D), dtype)
    row = pl.BlockSpec((T, D), lambda t: (t, 0))
    row_in = pl.BlockSpec((T, D), lambda t: (t, 0), pipeline_mode=pl.Buffered(tiling.buffers_in))
    return pl.pallas_call(
        functools.partial(_forward_kernel, eps=eps, rows=tiling.rows, lanes=tiling.lanes),
        grid=(pl.cdiv(N, T),),
        in_specs=[
            row_in,
            pl.BlockSpec((T, 1), lambda t: (t, 0)),
            row_in,
            pl.BlockSpec((1, D), lambda t: (0, 0)),
        ],
        out_specs=row,
        out_shape=out_shape,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel",), vmem_limit_bytes=tiling.vmem
        ),
        cost_estimate=pl.CostEstimate(
            flops=7 * N * D,
            bytes_accessed=total_bytes(args, out_shape),
            transcendentals=2 * N,
        ),
        interpret=interpret,
        name="merge_source_forward",
    )(*args)


def backward(
    out: Float[Array, "N D"],
    lse: Float[Array, " N"],
    value: Float[Array, "N D"],
    query: Float[Array, " D"],
    d_h: Float[Array, "N D"],
    *,
    eps: float,
    interpret=False,
) -> tuple[Float[Array, "N D"], Float[Array, " N"], Float[Array, "N D"], Float[Array, " D"]]:
    """Gradients of `forward` in one pass over the read, the source and the cotangent.

    Args:
      out, lse, value, query, eps, interpret: as in `forward`.
      d_h: cotangent [N, D] in the dtype of out.

    Returns:
      d_out [N, D], d_lse fp32 [N], d_value [N, D], and d_query fp32 [D]: a sum in a fixed order
      over this call's tokens.

    Raises:
      ValueError: `unsupported` has an objection.
    """
    _check(out, query)
    (N, D), dtype = out.shape, out.dtype
    tiling = Tiling.backward(2, 1, N, D, dtype.itemsize)
    T = tiling.tile
    tiles = pl.cdiv(N, T)
    # Two chunks of tiles, for the two TensorCores of a megacore device; each sums its own dq.
    chunks = min(2, tiles)
    steps = pl.cdiv(tiles, chunks)

    def tile(p, t):  # where the tiles run out, stay on the last one: nothing moves, nor is computed
        return jnp.minimum(p * steps + t, tiles - 1), 0

    def row(buffers):
        return pl.BlockSpec((T, D), tile, pipeline_mode=pl.Buffered(buffers))

    args = out, lse[:, None], value, query[None], d_h
    shape, scalar = shape_like(out), pl.BlockSpec((T, 1), tile)
    rows = shape((N, D), dtype)
    out_shape = rows, shape((N, 1), F32), rows, shape((chunks, 1, D), F32)
    read_in, read_out = row(tiling.buffers_in), row(tiling.buffers_out)
    d_out, d_lse, d_value, d_query = pl.pallas_call(
        functools.partial(
            _backward_kernel, eps=eps, rows=tiling.rows, lanes=tiling.lanes, tokens=N
        ),
        grid=(chunks, steps),
        in_specs=[
            read_in,
            scalar,
            read_in,
            pl.BlockSpec((1, D), lambda p, t: (0, 0)),
            pl.BlockSpec((T, D), tile),
        ],
        out_specs=(
            read_out,
            scalar,
            read_out,
            pl.BlockSpec((None, 1, D), lambda p, t: (p, 0, 0)),
        ),
        out_shape=out_shape,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=tiling.vmem
        ),
        cost_estimate=pl.CostEstimate(
            flops=15 * N * D,
            bytes_accessed=total_bytes(args, out_shape),
            transcendentals=2 * N,
        ),
        interpret=interpret,
        name="merge_source_backward",
    )(*args)
    return d_out, d_lse[:, 0], d_value, jnp.sum(d_query, axis=(0, 1))


def _forward_kernel(out_TD, lse_T1, v_TD, q_1D, h_TD, *, eps, rows, lanes):
    (T, D), R = out_TD.shape, rows

    @pl.loop(0, T // R)
    def _(k):
        row = pl.ds(pl.multiple_of(k * R, R), R)

        def reduce(lane, sums):
            square_R1, dot_R1 = sums
            x_RC = v_TD[row, lane].astype(F32)
            return square_R1 + row_sum(x_RC * x_RC), dot_R1 + row_sum(x_RC * q_1D[:, lane])

        square_R1, dot_R1 = over_lanes(D, lanes, reduce, (jnp.zeros((R, 1), F32),) * 2)
        z_R1 = lax.rsqrt(square_R1 / D + eps) * dot_R1
        share_R1 = jax.nn.sigmoid(z_R1 - lse_T1[row, :])

        def mix(lane, _):
            a_RC, x_RC = out_TD[row, lane].astype(F32), v_TD[row, lane].astype(F32)
            h_TD[row, lane] = (a_RC + share_R1 * (x_RC - a_RC)).astype(h_TD.dtype)

        over_lanes(D, lanes, mix, None)


def _backward_kernel(
    out_TD,
    lse_T1,
    v_TD,
    q_1D,
    dh_TD,
    dout_TD,
    dlse_T1,
    dv_TD,
    dq_1D,
    *,
    eps,
    rows,
    lanes,
    tokens,
):
    (T, D), R = out_TD.shape, rows
    first = (pl.program_id(0) * pl.num_programs(1) + pl.program_id(1)) * T
    groups = jnp.clip(lax.div(tokens - first + R - 1, R), 0, T // R)  # none where no tile is left

    @pl.when(pl.program_id(1) == 0)
    def _():
        dq_1D[...] = jnp.zeros(dq_1D.shape, F32)

    @pl.loop(0, groups)
    def _(k):
        row = pl.ds(pl.multiple_of(k * R, R), R)

        def reduce(lane, sums):
            square_R1, dot_R1, apart_R1 = sums
            a_RC, x_RC, g_RC = (ref[row, lane].astype(F32) for ref in (out_TD, v_TD, dh_TD))
            return (
                square_R1 + row_sum(x_RC * x_RC),
                dot_R1 + row_sum(x_RC * q_1D[:, lane]),
                apart_R1 + row_sum(g_RC * (x_RC - a_RC)),
            )

        sums = over_lanes(D, lanes, reduce, (jnp.zeros((R, 1), F32),) * 3)
        square_R1, dot_R1, apart_R1 = sums
        rstd_R1 = lax.rsqrt(square_R1 / D + eps)
        z_R1 = rstd_R1 * dot_R1
        share_R1 = jax.nn.sigmoid(z_R1 - lse_T1[row, :])
        dz_R1 = share_R1 * (1 - share_R1) * apart_R1
        dlse_T1[row, :] = -dz_R1
        ddot_R1 = rstd_R1 * dz_R1
        radial_R1 = ddot_R1 * (z_R1 * rstd_R1 / D)

        def spread(lane, _):
            x_RC, g_RC = v_TD[row, lane].astype(F32), dh_TD[row, lane].astype(F32)
            dout_TD[row, lane] = ((1 - share_R1) * g_RC).astype(dout_TD.dtype)
            dv_RC = share_R1 * g_RC + ddot_R1 * q_1D[:, lane] - radial_R1 * x_RC
            dv_TD[row, lane] = dv_RC.astype(dv_TD.dtype)
            dq_RC = ddot_R1 * x_RC
            if tokens % R:  # rows beyond the last token hold anything, NaN included
                row_RC = lax.broadcasted_iota(jnp.int32, dq_RC.shape, 0)
                dq_RC = jnp.where(row_RC < tokens - first - k * R, dq_RC, 0.0)
            dq_1D[:, lane] += jnp.sum(dq_RC, axis=0, keepdims=True)

        over_lanes(D, lanes, spread, None)


def _check(out, query):
    if objection := unsupported(out, query):
        raise ValueError(f"merge_source on TPU: {objection} Choose another implementation.")
