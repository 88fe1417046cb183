"""What depth attention refuses, and which implementation it takes unasked."""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import pytest

from kernels import best_implementation, depth_attention, merge_one, mix, score
from kernels.depth_attention import pallas_tpu

T, S, D = 4, 2, 24
F32 = jnp.float32


def source(*shape, dtype=F32):
    return jnp.ones(shape or (T, D), dtype)


def attend(values=None, queries=None, gain=None, **options):
    """Valid but for what is given."""
    values = [source()] * 3 if values is None else values
    rows = jnp.ones((S, D))
    return depth_attention(
        values, rows if queries is None else queries, rows if gain is None else gain, **options
    )


def wide(D, **options):
    """Sources and queries of another width than D."""
    rows = jnp.ones((S, D))
    return attend([source(T, D)], rows, rows, **options)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (partial(attend, []), "no source given; at least one is needed"),
        (
            partial(attend, [source(), source(1, D)]),
            r"one shape and dtype.* given: .*\(1, 24\).*\(4, 24\)",
        ),
        (
            partial(attend, [source(), source(dtype=jnp.bfloat16)]),
            "one shape and dtype.* given: .*bfloat16.*float32",
        ),
        (partial(attend, [source(dtype=jnp.int32)]), "sources are int32; bf16, fp16 or fp32"),
        (partial(attend, [jnp.float32(1)]), r"sources have shape \(\); \[\.\.\., D\] with D >= 1"),
        (
            partial(attend, queries=jnp.ones((S, 16))),
            r"queries has shape \(2, 16\); \[S, D\] with S >= 1 and D = 24",
        ),
        (partial(attend, queries=jnp.ones(D)), r"queries has shape \(24,\); \[S, D\]"),
        (partial(attend, queries=jnp.ones((0, D))), r"queries has shape \(0, 24\); .* S >= 1"),
        (
            partial(attend, gain=jnp.ones((3, D))),
            r"gain has shape \(3, 24\); .* with S = 2 as in queries",
        ),
        (partial(attend, gain=jnp.ones(D)), r"gain has shape \(24,\)"),
        (
            partial(attend, norm_gain=jnp.ones((S, 8))),
            r"norm_gain has shape \(2, 8\); .* D = 24, .* S = 2 as in queries",
        ),
        (
            partial(attend, implementation="pallas_tpus"),
            r"no implementation is called 'pallas_tpus'; did you mean 'pallas_tpu'\? "
            "there are reference, xla, pallas_tpu, pallas_gpu, or 'auto'",
        ),
        (partial(attend, implementation="8"), "is called '8'; there are reference"),
        (
            partial(attend, [source(dtype=jnp.float16)], implementation="pallas_tpu"),
            "pallas_tpu cannot take this: .* bfloat16 or float32 sources, not float16",
        ),
        (
            partial(wide, 20, implementation="pallas_tpu"),
            "pallas_tpu cannot take this: D = 20 is not a multiple of 8",
        ),
        (
            partial(attend, [source(0, D)], implementation="pallas_tpu"),
            "pallas_tpu cannot take this: there are no tokens",
        ),
        (
            partial(attend, [source(0, D)], implementation="pallas_gpu"),
            "pallas_gpu cannot take this: there is nothing to compute for N = 0",
        ),
        (
            partial(attend, [source()] * 9999, implementation="pallas_tpu"),
            "9999 sources and 2 reads of width 24 need .* MiB of VMEM",
        ),
        (
            partial(wide, 8200, implementation="pallas_gpu"),
            "pallas_gpu cannot take this: rows of D = 8200 do not fit .* 8192",
        ),
        (
            partial(attend, [source()] * 300, implementation="pallas_gpu"),
            "300 sources are more than a kernel can have operands for",
        ),
        (lambda: score(source(), jnp.ones((S, 8))), "width 24 and the queries 8"),
        (lambda: mix([source()], []), "1 sources and 0 logits given"),
        (lambda: mix([], []), "0 sources and 0 logits given; .* at least one source"),
    ],
)
def test_what_was_given_and_what_is_needed_is_said(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_what_cannot_run_on_a_tpu_says_why():
    queries = jax.ShapeDtypeStruct((1, 4096), F32)

    def why(n, D=4096, dtype=jnp.bfloat16):
        return pallas_tpu.unsupported([jax.ShapeDtypeStruct((8, D), dtype)] * n, queries)

    assert why(64) is None and why(3, 120) is None
    assert "VMEM" in why(1000)
    assert "multiple of 8" in why(3, 100)
    assert "float16" in why(3, dtype=jnp.float16)


@pytest.mark.parametrize(("name", "platform"), [("pallas_tpu", "tpu"), ("pallas_gpu", "cuda")])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_kernel_on_a_platform_without_it_says_so(name, platform, direction):
    def forward(values):
        return attend(values, implementation=name)[0].sum()

    function = forward if direction == "forward" else jax.grad(forward)
    sentence = f"{name} exists on {platform} only, and this is compiled for cpu; .*'xla' runs"
    with pytest.raises(ValueError, match=sentence):
        jax.jit(function)([source()])


def test_the_best_implementation_of_a_platform():
    names = [best_implementation(platform) for platform in ("cpu", "tpu", "gpu", "cuda", "rocm")]
    assert names == ["xla", "pallas_tpu", "pallas_gpu", "pallas_gpu", "xla"]


def jaxpr(implementation=None) -> str:
    """Traced anew: jax would remember an earlier trace of the same function."""
    return str(jax.make_jaxpr(lambda v: attend([v], implementation=implementation))(source()))


def test_on_a_cpu_it_is_xla_without_a_word():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chosen = jaxpr()
    assert not caught
    assert chosen == jaxpr("xla")


def test_on_a_tpu_it_is_the_kernel(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert "depth_attention_forward" in jaxpr()


def test_where_the_best_cannot_it_warns_once_and_takes_xla(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    rows = jnp.ones((S, D))
    with pytest.warns() as caught:
        out, _ = depth_attention([source(dtype=jnp.float16)], rows, rows)
    (warning,) = caught
    assert str(warning.message) == (
        "depth_attention uses xla, not pallas_tpu: "
        "Mosaic kernels take bfloat16 or float32 sources, not float16."
    )
    assert warning.filename == __file__
    assert (out == 1).all()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda v, w: depth_attention(v, w, w), r"values is one array \(2, 8\)"),
        (lambda v, w: depth_attention([[1.0]], w, w), "arrays are needed, but .* given: list"),
        (lambda v, w: depth_attention([v[:, :0]], w[:, :0], w[:, :0]), r"shape \(2, 0\)"),
        (lambda v, w: depth_attention([v], w, w, eps=0.0), "eps is 0.0; a number above 0"),
        (lambda v, w: depth_attention([v], w, w, sharding="x"), "sharding is a str"),
        (lambda v, w: merge_one(v, v[:, 0], v[:1], v[:, 0]), "merge: reads"),
        (lambda v, w: merge_one(v, v[0, 0], v, v[0, 0]), r"fp32 logits \[...\]"),
        (lambda v, w: mix([v, v[:1]], [v[:, 0]] * 2), "mix: sources .* of one shape"),
    ],
)
def test_what_would_broadcast_or_break_later_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(jnp.ones((2, 8)), jnp.ones((1, 8)))


def test_auto_is_the_best_of_the_platform():
    v, w = jnp.ones((2, 8)), jnp.ones((1, 8))
    depth_attention([v], w, w, implementation="auto")
