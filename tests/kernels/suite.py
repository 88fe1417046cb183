"""The tests every implementation of depth attention passes, through the public function."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import derivation
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jax.extend.core import jaxprs_in_params

from kernels import depth_attention
from kernels.depth_attention.implementations import BACKENDS
from kernels.depth_attention.pallas import Pallas

EPS = 1e-6


class Case(NamedTuple):
    """Arguments of `depth_attention` and cotangents of its three results."""

    values: tuple
    queries: jax.Array
    gain: jax.Array
    norm_gain: jax.Array
    cotangents: tuple  # of out, lse and normed

    def product(self):
        return np.float64(self.queries) * np.float64(self.gain)


class Result(NamedTuple):
    """Results, and gradients of values, queries, gain and norm_gain."""

    out: jax.Array
    lse: jax.Array
    normed: jax.Array
    gradients: tuple


def make_case(n=3, S=2, tokens=(9,), D=24, dtype="float32", seed=0) -> Case:
    """Sources of very different sizes, zero among them; logits of order one."""
    rng = np.random.default_rng(seed)
    shapes = [(S, *tokens, D), (S, *tokens), (S, *tokens, D)]
    dtypes = [dtype, "float32", dtype]
    return Case(
        values=tuple(
            jnp.asarray(rng.normal(size=(*tokens, D)) * rng.choice([0, 0.01, 1, 1, 100]), dtype)
            for _ in range(n)
        ),
        queries=jnp.float32(rng.normal(size=(S, D)) / np.sqrt(D)),
        gain=jnp.float32(rng.uniform(0.5, 2, size=(S, D))),
        norm_gain=jnp.float32(rng.uniform(0.5, 2, size=(S, D))),
        cotangents=tuple(
            jnp.asarray(rng.normal(size=shape), kind)
            for shape, kind in zip(shapes, dtypes, strict=True)
        ),
    )


def attend(implementation, save_scores=False, sharding=None):
    """depth_attention as a function of its arrays only."""

    def function(values, queries, gain, norm_gain):
        return depth_attention(
            values,
            queries,
            gain,
            eps=EPS,
            norm_gain=norm_gain,
            save_scores=save_scores,
            implementation=implementation,
            sharding=sharding,
        )

    return function


def forward_backward(function, case: Case) -> Result:
    results, vjp = jax.vjp(function, *case[:4])
    return Result(*results, vjp(case.cotangents))


@partial(jax.jit, static_argnums=(0, 2))
def run(implementation: str, case: Case, save_scores=False) -> Result:
    """Compiled once for each shape, whichever test asks."""
    return forward_backward(attend(implementation, save_scores), case)


def assert_agrees(result: Result, case: Case):
    """With the derivation at the rounded arguments; errors relative to each array's maximum.

    Arithmetic is fp32 with few operations in a row, so that fp32 results are right to a few dozen
    of its eps (1.2e-7), where the sums over D and tokens and the exponential sit. Below fp32, an
    array in the sources' dtype is rounded once (half an eps). The cotangent of `out` that comes
    back through the norm is rounded too, and `out` itself is read in backward: two roundings more,
    which gradients take times their own condition, hence eight eps for all gradients.
    """
    eps = float(jnp.finfo(case.values[0].dtype).eps)
    fp32 = 64 * float(jnp.finfo("float32").eps)
    arguments = case.values, case.product(), case.norm_gain, EPS
    expected = derivation.forward(*arguments)
    gradients = derivation.backward(*arguments, *case.cotangents)
    assert_close(result.out, expected.out, max(eps, fp32))
    assert_close(result.lse, expected.lse, fp32)
    assert_close(result.normed, expected.normed, max(eps, fp32))
    d_values, d_queries, d_gain, d_norm_gain = result.gradients
    tolerance = max(8 * eps, fp32)
    for got, wanted in zip(d_values, gradients.values, strict=True):
        assert_close(got, wanted, tolerance)
    assert_close(d_queries, gradients.queries * np.float64(case.gain), tolerance)
    assert_close(d_gain, gradients.queries * np.float64(case.queries), tolerance)
    assert_close(d_norm_gain, gradients.norm_gain, tolerance)
    types = jax.tree.map(lambda x: (x.shape, x.dtype), (result[:3], result.gradients))
    assert types == jax.tree.map(lambda x: (x.shape, x.dtype), (case.cotangents, case[:4]))


def assert_close(got, expected, tolerance):
    error = np.abs(np.asarray(got, np.float64) - expected).max()
    assert error <= tolerance * max(np.abs(expected).max(), 1e-3), f"{error} of {expected}"


def assert_equal(a, b):
    """To the bit, NaN included."""
    jax.tree.map(np.testing.assert_array_equal, a, b)


class DepthAttentionSuite:
    implementation: str
    dtypes = ("float32", "bfloat16", "float16")

    @pytest.fixture(autouse=True)
    def interpreted(self):
        """Pallas kernels run on the CPU in these tests."""
        with pytest.MonkeyPatch.context() as patch:
            module = BACKENDS.get(self.implementation)
            if isinstance(module, Pallas):
                patch.setitem(BACKENDS, self.implementation, replace(module, interpret=True))
            yield

    @settings(
        max_examples=6,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],  # a smaller counterexample is not worth a compilation each
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.differing_executors],  # one suite, several classes
    )
    @given(
        n=st.integers(1, 5),
        S=st.integers(1, 3),
        T=st.integers(1, 9),
        D=st.sampled_from([8, 24, 120, 136]),
        save_scores=st.booleans(),
        seed=st.integers(0, 99),
    )
    def test_any_size_agrees_with_the_derivation(self, n, S, T, D, save_scores, seed):
        case = make_case(n, S, (T,), D, seed=seed)
        assert_agrees(run(self.implementation, case, save_scores), case)

    @pytest.mark.parametrize(
        ("tokens", "dtype"),
        [((), "float32"), ((9,), "bfloat16"), ((2, 3), "float16"), ((2, 1, 3), "float32")],
        ids=str,
    )
    def test_leading_shapes_and_dtypes(self, tokens, dtype):
        dtype = dtype if dtype in self.dtypes else "bfloat16"
        case = make_case(tokens=tokens, dtype=dtype, seed=1)
        assert_agrees(run(self.implementation, case), case)

    def test_tokens_of_several_tiles_and_programs(self):
        """The last one only partly filled."""
        case = make_case(n=2, tokens=(7, 75), D=8)
        assert_agrees(run(self.implementation, case), case)

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    def test_a_lone_source_is_returned_and_leaves_its_query_alone(self, dtype):
        case = make_case(n=1, dtype=dtype, seed=1)
        d_out, d_lse, d_normed = case.cotangents
        result = run(
            self.implementation, case._replace(cotangents=(d_out, jnp.zeros_like(d_lse), d_normed))
        )
        assert case.values[0].any() and result.gradients[3].any()
        assert_equal(result.out, jnp.stack([case.values[0]] * 2))
        assert not result.gradients[1].any() and not result.gradients[2].any()

    def test_saved_scores_change_nothing(self):
        case = make_case()
        computed, saved = (run(self.implementation, case, save) for save in (False, True))
        assert_agrees(saved, case)
        assert_equal(computed[:3], saved[:3])
        for a, b in zip(*map(jax.tree.leaves, (computed.gradients, saved.gradients)), strict=True):
            assert_close(a, np.float64(b), 1e-6)

    def test_order_of_sources_is_free(self):
        case, order = make_case(), (2, 0, 1)
        result = run(self.implementation, case)
        moved = case._replace(values=tuple(case.values[i] for i in order))
        permuted = run(self.implementation, moved)
        d_values, *others = permuted.gradients
        assert_close(permuted.out, np.float64(result.out), 1e-6)
        for k, i in enumerate(order):
            assert_close(d_values[k], np.float64(result.gradients[0][i]), 1e-6)
        for a, b in zip(others, result.gradients[1:], strict=True):
            assert_close(a, np.float64(b), 1e-5)

    def test_results_and_gradients_repeat_to_the_bit(self):
        case = make_case()
        assert_equal(run(self.implementation, case), run(self.implementation, case))

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_one_bad_token_stays_alone(self, bad):
        case = make_case()
        poisoned = case.values[1].at[4, 5].set(bad)
        clean = run(self.implementation, case)
        result = run(
            self.implementation, case._replace(values=(case.values[0], poisoned, case.values[2]))
        )
        others = np.arange(9) != 4
        assert jnp.isnan(result.out[:, 4]).any() and jnp.isnan(result.lse[:, 4]).any()
        for got, wanted in zip(result[:3], clean[:3], strict=True):
            assert_equal(got[:, others], wanted[:, others])
        for got, wanted in zip(result.gradients[0], clean.gradients[0], strict=True):
            assert_equal(got[others], wanted[others])

    @pytest.mark.parametrize("sign", [1, -1])
    def test_huge_logits_do_not_overflow(self, sign):
        case = make_case()
        rng = np.random.default_rng(0)
        positive = tuple(jnp.float32(rng.uniform(0.5, 2, size=v.shape)) for v in case.values)
        case = case._replace(
            # A source twice shares the weight; logits differ by hundreds otherwise.
            values=(*positive[:2], positive[0]),
            queries=jnp.full_like(case.queries, sign * 450.0),
            gain=jnp.ones_like(case.gain),
        )
        assert (np.abs(derivation.lse(case.values, case.product(), EPS)) > 9e3).all()
        result = run(self.implementation, case)
        expected = derivation.forward(case.values, case.product(), case.norm_gain, EPS)
        # A logit of 1e4 is known to 1e-3 in fp32, and where two are close so are the weights.
        assert_close(result.out, expected.out, 2e-2)
        assert_close(result.lse, expected.lse, 1e-5)
        assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(result))

    def test_under_checkpoint(self):
        case = make_case()
        function = jax.checkpoint(attend(self.implementation))
        assert_agrees(jax.jit(partial(forward_backward, function))(case), case)

    def test_under_vmap_over_sources(self):
        case = make_case(tokens=(2, 3))
        function = jax.vmap(attend(self.implementation), in_axes=(0, None, None, None), out_axes=1)
        assert_agrees(jax.jit(partial(forward_backward, function))(case), case)

    def test_under_vmap_over_queries(self):
        a, b = make_case(), make_case()
        b = b._replace(queries=-a.queries, gain=a.gain[::-1])
        both = Case(a.values, *jax.tree.map(lambda *x: jnp.stack(x), a[1:], b[1:]))
        function = jax.vmap(attend(self.implementation), in_axes=(None, 0, 0, 0))
        result = jax.jit(partial(forward_backward, function))(both)
        for i, case in enumerate((a, b)):
            expected = derivation.forward(case.values, case.product(), case.norm_gain, EPS)
            assert_close(result.out[i], expected.out, 1e-5)
        gradients = [
            derivation.backward(c.values, c.product(), c.norm_gain, EPS, *c.cotangents)
            for c in (a, b)
        ]
        summed = gradients[0].values + gradients[1].values
        for got, wanted in zip(result.gradients[0], summed, strict=True):
            assert_close(got, wanted, 1e-5)
        for i, case in enumerate((a, b)):
            d_queries = gradients[i].queries * np.float64(case.gain)
            assert_close(result.gradients[1][i], d_queries, 1e-5)

    @pytest.mark.parametrize("save_scores", [False, True])
    def test_backward_keeps_a_few_scalars_a_token_beyond_sources_and_out(self, save_scores):
        n, S, T, D = 3, 2, 11, 24
        case = make_case(n, S, (T,), D, dtype="bfloat16")
        function = attend(self.implementation, save_scores)
        kept = jax.eval_shape(lambda *args: jax.vjp(function, *args)[1], *case[:4])
        of_tokens = sorted(x.shape for x in jax.tree.leaves(kept) if T in x.shape)
        scores = [(n, T), (n, S, T)] if save_scores else []
        assert of_tokens == sorted([(T, D)] * n + [(S, T, D), (S, T), *scores])

    def test_sources_are_never_stacked(self):
        n, T, D = 3, 600, 256
        for equation in equations(self.program(n, T, D)):
            if equation.primitive.name == "concatenate":
                assert equation.outvars[0].aval.size < T * D

    def program(self, n, T, D):
        """The jaxpr of forward and backward for n bf16 sources [T, D], on the hardware named."""
        case = jax.eval_shape(lambda: make_case(n, 2, (T,), D, dtype="bfloat16"))
        return jax.make_jaxpr(lambda case: forward_backward(attend(self.implementation), case))(
            case
        ).jaxpr


class PallasSuite(DepthAttentionSuite):
    """Each pass is one kernel, which has every source as one operand."""

    def test_each_pass_is_one_kernel_that_reads_each_source_once(self):
        n, T, D = 3, 600, 256
        forward, backward = (
            e for e in equations(self.program(n, T, D)) if e.primitive.name == "pallas_call"
        )
        for kernel in (forward, backward):
            operands = [x for x in kernel.invars if x.aval.shape == (T, D)]
            assert len(operands) == len(set(operands)) == n
            assert self.loads(kernel, T, D) == [1] * n

    def loads(self, kernel, T, D) -> list[float]:
        """How often each source [T, D] comes from memory in one kernel."""
        raise NotImplementedError


def equations(jaxpr):
    """All equations of a jaxpr and of those within it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)
