"""The TPU kernels through the TPU compiler, without a TPU: they fit, and move no byte too many."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from kernels import depth_attention
from kernels.depth_attention import pallas_tpu
from kernels.depth_attention.base import Scores

pytestmark = [pytest.mark.tpu_aot, pytest.mark.usefixtures("no_compile_cache")]
BF16, F32, MIB = jnp.bfloat16, jnp.float32, 2**20
# n sources, S reads, d_model, dtype, tokens
SHAPES = {
    "kimi_48b": (10, 6, 2304, BF16, 4096),
    "436m": (9, 4, 1168, BF16, 1000),
    "194m_full": (25, 1, 896, BF16, 2048),
    "deep_and_wide": (64, 1, 8192, BF16, 1024),
    "deep_and_wide_fp32": (64, 1, 8192, F32, 256),
    "many_reads": (12, 8, 4096, BF16, 500),
    "one_token": (2, 3, 120, F32, 1),
}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
tpus = pytest.mark.parametrize("tpu", ["v5e:2x2", "v5p:2x2x1"])
extras = pytest.mark.parametrize("extra", [False, True], ids=["plain", "extra"])


@pytest.fixture
def devices(tpu, tpu_devices):
    return np.array(tpu_devices(tpu))


@pytest.fixture
def array(devices):
    """Arguments in row-major order: left alone, XLA stores an entry argument as it pads least."""
    sharding = NamedSharding(Mesh(devices[:1], ("x",)), P())

    def make(shape, dtype=F32):
        layout = Format(Layout(tuple(range(len(shape)))), sharding)
        return jax.ShapeDtypeStruct(shape, dtype, sharding=layout)

    return make


def forward(values, queries, norm_gain):
    save = norm_gain is not None
    return pallas_tpu.forward(values, queries, eps=1e-6, norm_gain=norm_gain, save_scores=save)


def backward(values, queries, scores, d_out, d_lse):
    return pallas_tpu.backward(values, queries, None, None, scores, d_out, d_lse, eps=1e-6)


def check(function, args, shape, moved):
    """Compiles; the kernel counts `moved` bytes, and around it are only the scalars of a token."""
    n, S, D, _, N = shape
    (kernel,) = (
        e for e in jax.make_jaxpr(function)(*args).eqns if e.primitive.name == "pallas_call"
    )
    estimate = kernel.params["cost_estimate"]
    assert estimate.bytes_accessed == moved
    row_major = jax.tree.map(
        lambda x: Format(Layout(tuple(range(x.ndim))), args[1].sharding),
        jax.eval_shape(function, *args),
    )
    compiled = jax.jit(function, out_shardings=row_major).lower(*args).compile()
    # A token's row of scalars is stored in whole registers of 128 lanes.
    scalars = -(-N // 8) * 8 * 512 * (3 + -(-S * n // 128)) + MIB
    assert compiled.memory_analysis().temp_size_in_bytes < scalars
    cost = compiled.cost_analysis()
    assert moved <= cost["bytes accessed"] < moved + 6 * scalars
    assert cost["flops"] == pytest.approx(estimate.flops, rel=0.02, abs=1e5)
    source = rf"= \w+\[(\d+,)?{N},{D}\]\S* (copy|transpose|pad|concatenate)\("
    assert not re.search(source, compiled.as_text())


@tpus
@shapes
@extras
def test_forward_reads_each_source_once(array, shape, extra):
    n, S, D, dtype, N = shape
    values, queries = [array((N, D), dtype)] * n, array((S, D))
    size = jnp.dtype(dtype).itemsize
    moved = (n + S) * N * D * size + 4 * S * (D + N)
    if extra:
        moved += S * N * D * size + 4 * S * D + 4 * n * N * (1 + S)
    check(forward, (values, queries, array((S, D)) if extra else None), shape, moved)


@tpus
@shapes
@extras
def test_backward_reads_each_source_once(array, shape, extra):
    n, S, D, dtype, N = shape
    scores = Scores(array((n, N)), array((n, S, N))) if extra else None
    args = [array((N, D), dtype)] * n, array((S, D)), scores, array((S, N, D), dtype), array((S, N))
    chunks = 1 if N == 1 else 2
    moved = (2 * n + S) * N * D * jnp.dtype(dtype).itemsize + 4 * S * (D + N + chunks * D)
    check(backward, args, shape, moved + (4 * n * N * (1 + S) if extra else 0))


@tpus
@pytest.mark.parametrize("by", ["shard_map", "sharding"])
def test_several_devices_each_read_their_own_tokens(devices, by):
    mesh = Mesh(devices, ("x",))
    inside = by == "shard_map"
    sharding = None if inside else NamedSharding(mesh, P("x"))

    def step(values, queries, d_out, d_lse):
        read = functools.partial(
            depth_attention, implementation="pallas_tpu", sharding=sharding, stacked=False
        )
        (out, lse), vjp = jax.vjp(read, values, queries, jnp.ones_like(queries))
        return out, lse, *vjp((d_out, d_lse))[:2]

    token, whole, lse = P("x"), P(), P(None, "x")
    specs = [token] * 5, whole, (token, token), lse
    row = jax.ShapeDtypeStruct((4096, 256), BF16)
    scalars = jax.ShapeDtypeStruct((2, 4096), F32)
    args = [row] * 5, jax.ShapeDtypeStruct((2, 256), F32), (row, row), scalars
    args = jax.tree.map(lambda x, spec: x.update(sharding=NamedSharding(mesh, spec)), args, specs)
    if inside:
        outs = (token, token), lse, [token] * 5, whole
        step = jax.shard_map(step, mesh=mesh, in_specs=specs, out_specs=outs)
    text = jax.jit(step).lower(*args).compile().as_text()
    assert "all-reduce" in text and "all-gather" not in text
