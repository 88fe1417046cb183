"""The Triton kernels lower where there is no GPU, and run right where there is one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lowering import gpu_text

from kernels.depth_attention import pallas_gpu
from kernels.depth_attention.base import Scores

EPS = 1e-6
F32 = jnp.float32
KERNEL = "__gpu$xla.gpu.triton"


def forward(values, queries, norm_gain):
    return pallas_gpu.forward(
        values, queries, eps=EPS, norm_gain=norm_gain, save_scores=norm_gain is not None
    )


def backward(values, queries, forward, d_out, d_lse):
    saved = forward.out, forward.lse, forward.scores
    return pallas_gpu.backward(values, queries, *saved, d_out, d_lse, eps=EPS)


def assert_one_kernel(text):
    assert text.count(KERNEL) == 1
    assert "stablehlo.concatenate" not in text  # the sources are never stacked


@pytest.mark.parametrize("everything", [False, True], ids=["plain", "norm_and_scores"])
@pytest.mark.parametrize("n", [1, 9, 33])
@pytest.mark.parametrize(
    ("D", "dtype"),
    [(512, "bfloat16"), (1024, "bfloat16"), (4096, "bfloat16"), (7168, "bfloat16"), (1168, F32)],
)
def test_each_pass_lowers_to_one_triton_kernel(D, dtype, n, everything):
    S, N = 3, 8192
    shape = jax.ShapeDtypeStruct
    values, queries = [shape((N, D), dtype)] * n, shape((S, D), F32)
    norm_gain = queries if everything else None
    assert pallas_gpu.unsupported(values, queries) is None
    result = jax.eval_shape(forward, values, queries, norm_gain)
    assert result.out == shape((S, N, D), dtype)
    assert result.lse == shape((S, N), F32)
    assert result.normed == (result.out if everything else None)
    scores = Scores(shape((n, N), F32), shape((n, S, N), F32))
    assert result.scores == (scores if everything else None)
    assert_one_kernel(gpu_text(forward, values, queries, norm_gain))
    assert_one_kernel(gpu_text(backward, values, queries, result, result.out, result.lse))


@pytest.mark.parametrize(
    ("D", "dtype", "n", "word"),
    [(8193, "bfloat16", 2, "8192"), (64, "int32", 2, "int32"), (64, F32, 250, "operands")],
)
def test_what_it_cannot_take_is_said(D, dtype, n, word):
    values, queries = [jax.ShapeDtypeStruct((4, D), dtype)] * n, jax.ShapeDtypeStruct((2, D), F32)
    assert word in pallas_gpu.unsupported(values, queries)
    with pytest.raises(ValueError, match=word):
        pallas_gpu.forward(values, queries, eps=EPS)


@pytest.mark.gpu
@pytest.mark.skipif(jax.default_backend() != "gpu", reason="jax sees no GPU")
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
@pytest.mark.parametrize("everything", [False, True], ids=["plain", "norm_and_scores"])
@pytest.mark.parametrize(
    ("n", "S", "N", "D", "dtype"),
    [
        (1, 3, 300, 512, "bfloat16"),
        (2, 1, 301, 120, "float32"),
        (9, 3, 1000, 1168, "bfloat16"),
        (9, 4, 5000, 4096, "bfloat16"),
        (9, 8, 300, 7168, "bfloat16"),
        (3, 8, 300, 2048, "float16"),
        (33, 1, 300, 1024, "float32"),
    ],
)
def test_both_passes_agree_with_float64_on_the_gpu(n, S, N, D, dtype, everything):
    rng = np.random.default_rng(0)
    values = [
        jnp.asarray(rng.normal(size=(N, D)) * rng.choice([0.1, 1, 10]), dtype) for _ in range(n)
    ]
    queries = jnp.asarray(rng.normal(size=(S, D)) / np.sqrt(D), F32)
    norm_gain = jnp.asarray(rng.uniform(0.5, 2, size=(S, D)), F32) if everything else None
    d_out = jnp.asarray(rng.normal(size=(S, N, D)), dtype)
    d_lse = jnp.asarray(rng.normal(size=(S, N)) * (n > 1), F32)
    result = jax.jit(forward)(values, queries, norm_gain)
    args = values, queries, result, d_out, d_lse
    d_values, d_queries = jax.jit(backward)(*args)

    out, lse, d_v, d_q = derivation(values, queries, result.out, d_out, d_lse)
    tolerance = 4 * float(jnp.finfo(dtype).eps)
    assert_close(result.out, out, tolerance)
    assert_close(result.lse, lse, 1e-5)
    for got, expected in zip(d_values, d_v, strict=True):
        assert_close(got, expected, 2 * tolerance)
    if n == 1:
        assert not d_queries.any()
        assert (result.out == values[0][None]).all()
    else:
        assert_close(d_queries, d_q, 1e-4)
    if everything:
        rms = np.sqrt(np.mean(out**2, -1, keepdims=True) + EPS)
        assert_close(result.normed, out / rms * np.float64(norm_gain)[:, None], tolerance)
    again = jax.jit(backward)(*args)
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), again, (d_values, d_queries)))


def derivation(values, queries, out_saved, d_out, d_lse):
    """out, lse, dv and dq of base.py in float64; delta is of the out that was saved, as there."""
    v_IND, q_SD, saved_SND, do_SND, dl_SN = (
        np.stack([np.asarray(x, np.float64) for x in a])
        for a in (values, queries, out_saved, d_out, d_lse)
    )
    r_IN = 1 / np.sqrt(np.mean(v_IND**2, -1) + EPS)
    z_ISN = np.einsum("sd,ind->isn", q_SD, v_IND) * r_IN[:, None]
    lse_SN = np.logaddexp.reduce(z_ISN, axis=0)
    p_ISN = np.exp(z_ISN - lse_SN)
    delta_SN = np.einsum("snd,snd->sn", do_SND, saved_SND)
    dz_ISN = p_ISN * (np.einsum("snd,ind->isn", do_SND, v_IND) - delta_SN + dl_SN)
    a_ISN = dz_ISN * r_IN[:, None]
    slope_IN = np.einsum("isn,isn->in", a_ISN, z_ISN) * r_IN / v_IND.shape[-1]
    dv_IND = np.einsum("isn,snd->ind", p_ISN, do_SND) + np.einsum("isn,sd->ind", a_ISN, q_SD)
    dv_IND -= slope_IN[..., None] * v_IND
    out_SND = np.einsum("isn,ind->snd", p_ISN, v_IND)
    return out_SND, lse_SN, dv_IND, np.einsum("isn,ind->sd", a_ISN, v_IND)


def assert_close(got, expected, tolerance):
    error = np.abs(np.asarray(got, np.float64) - expected).max()
    assert error <= tolerance * np.abs(expected).max()
