"""A source added to a read in one pass; the TPU kernel is interpreted."""

import warnings
from dataclasses import replace
from functools import partial

import derivation
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.pallas.mosaic.interpret import interpret_pallas_call  # races are found nowhere else
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from suite import EPS, assert_close, assert_equal, equations

from kernels import merge_source
from kernels.depth_attention import api, merge_tpu, tiling

both = pytest.mark.parametrize("implementation", ["xla", "pallas_tpu"])
FP32 = 64 * float(jnp.finfo("float32").eps)  # as in suite.assert_agrees


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    interpret(monkeypatch, True)


def interpret(monkeypatch, how):
    """Sets how the kernel runs, which is where `depth_attention` has it too."""
    module = replace(api._MODULES["pallas_tpu"], interpret=how)
    monkeypatch.setitem(api._MODULES, "pallas_tpu", module)


def make_case(tokens=(9,), D=24, dtype="float32", seed=0):
    """out, lse, value and query, and a cotangent; rows of very different sizes, zero among them."""
    rng = np.random.default_rng(seed)
    out, value, d_h = (rng.normal(size=(*tokens, D)) for _ in range(3))
    value *= rng.choice([0, 0.01, 1, 100], size=(*tokens, 1))
    lse, query = rng.normal(size=tokens), rng.normal(size=D) / np.sqrt(D)
    out, value, d_h = (jnp.asarray(x, dtype) for x in (out, value, d_h))
    return (out, jnp.float32(lse), value, jnp.float32(query)), d_h


@partial(jax.jit, static_argnums=0)
def run(implementation, args, d_h):
    """h and the gradients of out, lse, value and query."""
    h, vjp = jax.vjp(partial(merge_source, eps=EPS, implementation=implementation), *args)
    return h, *vjp(d_h)


def derived(args, d_h):
    """The same in float64, back through the definition step by step."""
    out, lse, value, query, d_h = (np.asarray(x, np.float64) for x in (*args, d_h))
    keys = derivation.unit(value, EPS)
    share = 1 / (1 + np.exp(lse - keys @ query))[..., None]
    d_z = share * (1 - share) * np.sum(d_h * (value - out), axis=-1, keepdims=True)
    d_value = share * d_h + derivation.unit_backward(value, EPS, d_z * query)
    d_query = np.sum((d_z * keys).reshape(-1, len(query)), axis=0)
    return out + share * (value - out), (1 - share) * d_h, -d_z[..., 0], d_value, d_query


def assert_agrees(results, args, d_h):
    """Errors relative to each array's maximum: fp32 arithmetic, then one rounding, or for the
    source's gradient in the plain form a sum of two rounded parts."""
    eps = float(jnp.finfo(args[0].dtype).eps)
    for got, wanted, narrow in zip(results, derived(args, d_h), (1, 1, 0, 2, 0), strict=True):
        assert_close(got, wanted, max(narrow * eps, FP32))
    types = [(x.shape, x.dtype) for x in results]
    assert types == [(x.shape, x.dtype) for x in (args[0], *args)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("tokens", "D"), [(277, 8), (20, 120), (3, 136)])
def test_any_size_agrees_with_the_derivation(tokens, D, dtype):
    case = make_case((tokens,), D, dtype)
    assert_agrees(run("pallas_tpu", *case), *case)


def test_wide_rows_in_two_parts_of_unequal_width():
    case = make_case((3,), 1168)
    assert_agrees(run("pallas_tpu", *case), *case)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_plain_form_agrees_with_the_derivation(dtype):
    case = make_case(dtype=dtype)
    assert_agrees(run("xla", *case), *case)


@both
@pytest.mark.parametrize("tokens", [(), (2, 1, 3)], ids=str)
def test_leading_shapes(implementation, tokens):
    case = make_case(tokens, seed=1)
    assert_agrees(run(implementation, *case), *case)


@both
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_where_lse_is_infinite_there_is_no_source(implementation, dtype):
    (out, lse, value, query), d_h = make_case(dtype=dtype)
    absent = np.arange(9) % 2 == 0
    args = out, jnp.where(absent, jnp.inf, lse), value, query
    h, d_out, d_lse, d_value, d_query = map(np.asarray, run(implementation, args, d_h))
    out, value, d_h = map(np.asarray, (out, value, d_h))
    assert_equal((h[absent], d_out[absent]), (out[absent], d_h[absent]))
    assert not d_lse[absent].any() and not d_value[absent].any()
    present = (out[~absent], lse[~absent], value[~absent], query), d_h[~absent]
    results = h[~absent], d_out[~absent], d_lse[~absent], d_value[~absent], d_query
    assert_agrees(results, *present)


@both
@pytest.mark.parametrize("sign", [1, -1])
def test_huge_logits_do_not_overflow(implementation, sign):
    (out, _, _, _), d_h = make_case()
    rng = np.random.default_rng(0)
    value, query = jnp.float32(rng.uniform(0.5, 2, size=out.shape)), jnp.full(24, sign * 450.0)
    logit = derivation.unit(np.float64(value), EPS) @ np.float64(query)
    assert (np.abs(logit) > 9e3).all()
    lse = jnp.float32(logit + rng.choice([0, 1, -1, 1e4, -1e4], size=9))
    args = out, lse, value, query
    results = run(implementation, args, d_h)
    # A logit of 1e4 is known to 1e-3 in fp32, and so is the weight where lse is as large.
    with np.errstate(over="ignore"):
        expected = derived(args, d_h)
    for got, wanted in zip(results, expected, strict=True):
        assert_close(got, wanted, 2e-2)
    assert all(jnp.isfinite(x).all() for x in results)


@both
@pytest.mark.parametrize("which", [0, 1, 2])
def test_one_bad_token_stays_alone(implementation, which):
    args, d_h = make_case()
    bad = list(args)
    bad[which] = bad[which].at[4].set(jnp.nan)
    clean, results = run(implementation, args, d_h), run(implementation, tuple(bad), d_h)
    others = np.arange(9) != 4
    assert jnp.isnan(results[0][4]).any()
    for got, wanted in zip(results[:-1], clean[:-1], strict=True):
        assert_equal(got[others], wanted[others])


@both
def test_results_and_gradients_repeat_to_the_bit(implementation):
    case = make_case((277,), 8)
    assert_equal(run(implementation, *case), run(implementation, *case))


def test_the_kernel_is_free_of_races(monkeypatch):
    """Two cores, memory that starts as NaN, reads out of bounds refused, three small tiles."""
    monkeypatch.setattr(tiling, "ENOUGH", 0)
    interpret(monkeypatch, pltpu.InterpretParams(detect_races=True, num_cores_or_threads=2))
    args, d_h = make_case((20,))
    h, vjp = jax.vjp(partial(merge_source, eps=EPS, implementation="pallas_tpu"), *args)
    assert_agrees((h, *vjp(d_h)), args, d_h)
    assert not interpret_pallas_call.races.races_found


@both
def test_under_checkpoint_and_vmap(implementation):
    args, d_h = make_case((2, 3), D=8)
    function = partial(merge_source, eps=EPS, implementation=implementation)
    function = jax.checkpoint(jax.vmap(function, in_axes=(0, 0, 0, None)))
    h, vjp = jax.vjp(jax.jit(function), *args)
    assert_agrees((h, *vjp(d_h)), args, d_h)


@both
def test_with_a_sharding(implementation):
    """Over one device; the kernel's call is local to it all the same."""
    args, d_h = make_case((2, 3), D=8)
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "seq"))
    sharding = NamedSharding(mesh, P("data", "seq"))

    @jax.jit
    def function(*args):
        return merge_source(*args, eps=EPS, implementation=implementation, sharding=sharding)

    h, vjp = jax.vjp(function, *args)
    assert_agrees((h, *vjp(d_h)), args, d_h)


def test_inside_shard_map_the_query_s_gradient_is_summed_over_devices(monkeypatch):
    """Traced with JAX's check of what varies over devices, which interpreted kernels fail."""
    interpret(monkeypatch, False)
    args, d_h = make_case()
    specs = P("x"), P("x"), P("x"), P()

    def step(d_h, *args):
        return jax.vjp(partial(merge_source, implementation="pallas_tpu"), *args)[1](d_h)

    mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
    step = jax.shard_map(step, mesh=mesh, in_specs=(P("x"), *specs), out_specs=specs)
    assert "psum" in str(jax.make_jaxpr(step)(d_h, *args))


def test_backward_of_the_kernel_keeps_the_arguments_only():
    args, _ = make_case((11,), dtype="bfloat16")
    function = partial(merge_source, implementation="pallas_tpu")
    kept = jax.eval_shape(lambda *args: jax.vjp(function, *args)[1], *args)
    assert sorted(x.shape for x in jax.tree.leaves(kept)) == sorted(x.shape for x in args)


def calls(implementation) -> list[str]:
    """Names of the kernels in forward and backward; traced anew."""
    args, d_h = make_case()

    def step(*args):
        return jax.vjp(partial(merge_source, implementation=implementation), *args)[1](d_h)

    jaxpr = jax.make_jaxpr(step)(*args).jaxpr
    return [e.params["name"] for e in equations(jaxpr) if e.primitive.name == "pallas_call"]


def test_implementations(monkeypatch):
    assert not any(map(calls, (None, "reference", "xla", "pallas_gpu")))
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert calls(None) == calls("pallas_tpu") == ["merge_source_forward", "merge_source_backward"]


def test_where_the_kernel_cannot_it_warns_and_takes_xla(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    args, _ = make_case(dtype="float16")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        h = merge_source(*args)
    (warning,) = caught
    assert "uses xla, not pallas_tpu: Mosaic kernels take bfloat16" in str(warning.message)
    assert warning.filename == __file__
    assert_equal(h, merge_source(*args, implementation="xla"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (dict(value=(9, 16)), r"out is float32 \(9, 24\) and value float32 \(9, 16\); one shape"),
        (dict(lse=(8,)), r"lse is float32 \(8,\); float32 \(9,\), one a token of out, is needed"),
        (dict(query=(1, 24)), r"query has shape \(1, 24\); \[D\] with D = 24, the width of out"),
        (dict(out=(), value=()), r"out and value are scalars; \[..., D\] is needed"),
        (dict(out=(9, 20), value=(9, 20), query=(20,)), "pallas_tpu cannot take .* multiple of 8"),
        (dict(implementation="pallas"), "no implementation is called 'pallas'"),
    ],
)
def test_what_was_given_and_what_is_needed_is_said(change, sentence):
    shapes = dict(out=(9, 24), lse=(9,), value=(9, 24), query=(24,)) | change
    name = shapes.pop("implementation", "pallas_tpu")
    with pytest.raises(ValueError, match=sentence):
        merge_source(**{k: jnp.ones(shape) for k, shape in shapes.items()}, implementation=name)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_dtypes_that_do_not_fit_are_refused(index):
    args = list(make_case()[0])
    args[index] = args[index].astype(jnp.bfloat16)
    with pytest.raises(ValueError, match=r"bfloat16.* is needed"):
        merge_source(*args)
    args[0] = args[2] = jnp.ones((9, 24), jnp.int32)
    with pytest.raises(ValueError, match="are int32; bf16, fp16 or fp32 is needed"):
        merge_source(*args)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_kernel_on_a_platform_without_it_says_so(monkeypatch, direction):
    interpret(monkeypatch, False)

    def forward(*args):
        return merge_source(*args, implementation="pallas_tpu").sum()

    function = forward if direction == "forward" else jax.grad(forward)
    sentence = "pallas_tpu exists on tpu only, and this is compiled for cpu; .*'xla' runs"
    with pytest.raises(ValueError, match=sentence):
        jax.jit(function)(*make_case()[0])


def test_the_kernel_says_what_it_cannot_take():

    args, _ = make_case(D=20)
    with pytest.raises(ValueError, match="merge_source on TPU: D = 20 is not a multiple of 8"):
        merge_tpu.forward(*args, eps=EPS)
