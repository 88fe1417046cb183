"""What an implementation with its own backward provides (all but `reference`): two functions.

Dimensions: n sources, S reads (one pseudo-query each), N tokens of one device, D d_model.
An implementation has

    forward(values, queries, *, eps, norm_gain=None, save_scores=False, stacked=True) -> Forward
    backward(values, queries, out, lse, scores, d_out, d_lse, *, eps) -> (d_values, d_queries)
    unsupported(values, queries) -> str | None     why it cannot take these shapes, if so

where the S reads, and their cotangents, are one array [S, N, D] or S arrays [N, D] (`stacked`),
values are n arrays [N, D] of one float dtype, and queries [S, D] are pseudo-query times key
gain in fp32 (only the product enters the logits). All arithmetic is fp32, with one cast at the end.
Writing r_i = 1/sqrt(mean(v_i^2) + eps), z_is = r_i q_s . v_i, p_is = exp(z_is - lse_s):

    out_s   = sum_i p_is v_i            lse_s = log sum_i exp z_is
    dp_is   = dout_s . v_i              dz_is = p_is (dp_is - dout_s . out_s + dlse_s)
    ddot_is = r_i dz_is                 radial_i = r_i^2 sum_s dz_is z_is / D
    dv_i    = sum_s (p_is dout_s + ddot_is q_s) - radial_i v_i
    dq_s    = sum over tokens and i of ddot_is v_i

`xla` and `Pallas` (pallas.py) take tokens of any leading shape in place of N. The kernel modules
behind `Pallas` take flat tokens and, for tests, `interpret`. Backward may ignore `out` and
`lse`, as pallas_tpu does.
"""

from typing import NamedTuple

from jaxtyping import Array, Float

Reads = Float[Array, "S N D"] | tuple[Float[Array, "N D"], ...]  # S reads, stacked or not


class Scores(NamedTuple):
    """What backward would otherwise compute again from the sources, a few scalars a token."""

    rstd: Float[Array, "n N"]
    logits: Float[Array, "n S N"]


class Forward(NamedTuple):
    """Results of a forward pass; `normed` and `scores` only where they were asked for."""

    out: Reads
    lse: Float[Array, "S N"]
    normed: Reads | None = None  # RMSNorm(out_s) * norm_gain_s, the following PreNorm
    scores: Scores | None = None
