"""The Triton kernels lower where there is no GPU, and run right where there is one."""

import contextlib
import warnings

import derivation
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from suite import EPS, assert_close

from kernels.depth_attention import pallas_gpu
from kernels.depth_attention.base import Scores

F32 = jnp.float32
KERNEL = "__gpu$xla.gpu.triton"


def forward(values, queries, norm_gain):
    return pallas_gpu.forward(
        values, queries, eps=EPS, norm_gain=norm_gain, save_scores=norm_gain is not None
    )


def backward(values, queries, forward, d_out, d_lse):
    saved = forward.out, forward.lse, forward.scores
    return pallas_gpu.backward(values, queries, *saved, d_out, d_lse, eps=EPS)


def gpu_text(function, *args) -> str:
    """StableHLO of `function` for a Hopper GPU; the arguments may be `jax.ShapeDtypeStruct`s."""
    with hopper(), warnings.catch_warnings():
        # jax 0.12 announces that Pallas moves its GPU kernels from Triton to Mosaic.
        warnings.filterwarnings("ignore", message="The Pallas Triton backend is deprecated")
        return jax.jit(function).trace(*args).lower(lowering_platforms=("cuda",)).as_text()


def hopper():
    """Tells jax which GPU to lower for; before 0.12 it assumes one by itself."""
    if not hasattr(jax.sharding, "AbstractDevice"):
        return contextlib.nullcontext()
    device = jax.sharding.AbstractDevice(device_kind="NVIDIA H100", num_cores=132, platform="gpu")
    mesh = jax.sharding.AbstractMesh(
        (1,), ("device",), (jax.sharding.AxisType.Explicit,), abstract_device=device
    )
    return jax.sharding.use_abstract_mesh(mesh)


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

    gain = np.ones((S, D)) if norm_gain is None else norm_gain
    expected = derivation.forward(values, queries, gain, EPS)
    # Backward takes dout . out of the rounded out, which is as if d_lse were another.
    rounded = np.sum(np.float64(d_out) * (np.float64(result.out) - expected.out), axis=-1)
    cotangents = d_out, np.float64(d_lse) - rounded, np.zeros((S, N, D))
    gradients = derivation.backward(values, queries, gain, EPS, *cotangents)
    tolerance = 4 * float(jnp.finfo(dtype).eps)
    assert_close(result.out, expected.out, tolerance)
    assert_close(result.lse, expected.lse, 1e-5)
    for got, wanted in zip(d_values, gradients.values, strict=True):
        assert_close(got, wanted, 2 * tolerance)
    if n == 1:
        assert not d_queries.any()
        assert (result.out == values[0][None]).all()
    else:
        assert_close(d_queries, gradients.queries, 1e-4)
    if everything:
        assert_close(result.normed, expected.normed, tolerance)
    again = jax.jit(backward)(*args)
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), again, (d_values, d_queries)))
