"""Joining reads, scoring and mixing: parts of depth attention that give what the whole gives."""

import derivation
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from suite import EPS, assert_close, assert_equal, make_case

from kernels import depth_attention, merge, merge_one, mix, score

TOLERANCE = 1e-5  # about a hundred fp32 eps, relative to each array's maximum
READS, TOKENS, D = 2, (3, 5), 24


def attend(values, queries):
    return depth_attention(values, queries, jnp.ones_like(queries), eps=EPS, implementation="xla")


def two_reads_merged(values, queries):
    return merge(*attend(values[:2], queries), *attend(values[2:], queries))


def one_source_added(values, queries):
    """The last one, read by read, to a read of the others."""
    out, lse = attend(values[:-1], queries)
    logits = score(values[-1], queries, eps=EPS)
    added = [merge_one(out[s], lse[s], values[-1], logits[s]) for s in range(READS)]
    return jnp.stack(added), jnp.logaddexp(lse, logits)


def scored_and_mixed(values, queries):
    logits = [score(v, queries, eps=EPS) for v in values]
    out = jnp.stack([mix(values, [z[s] for z in logits]) for s in range(READS)])
    return out, jax.nn.logsumexp(jnp.stack(logits), axis=0)


@pytest.mark.parametrize("n", [3, 7])
@pytest.mark.parametrize("way", [two_reads_merged, one_source_added, scored_and_mixed])
def test_every_way_to_a_read_agrees_with_the_derivation(way, n):
    case = make_case(n, READS, TOKENS, D)
    queries = case.queries * case.gain
    d_out, d_lse, _ = case.cotangents
    (out, lse), vjp = jax.vjp(jax.jit(way), case.values, queries)
    d_values, d_queries = vjp((d_out, d_lse))

    norm_gain = np.ones((READS, D))
    expected = derivation.forward(case.values, queries, norm_gain, EPS)
    no_norm = np.zeros(d_out.shape)
    gradients = derivation.backward(
        case.values, queries, norm_gain, EPS, d_out, d_lse, d_normed=no_norm
    )
    assert_close(out, expected.out, TOLERANCE)
    assert_close(lse, expected.lse, TOLERANCE)
    assert_close(d_queries, gradients.queries, TOLERANCE)
    for got, wanted in zip(d_values, gradients.values, strict=True):
        assert_close(got, wanted, TOLERANCE)


def test_scores_are_logits_of_any_number_of_reads():
    case = make_case(1, 7, TOKENS, D, seed=1)
    (value,), queries = case.values, case.queries
    expected = derivation.logits([value], queries, EPS)[0]
    assert_close(score(value, queries, eps=EPS), expected, TOLERANCE)


def test_gradients_of_merge_one_agree_with_finite_differences():
    rng = np.random.default_rng(0)
    arguments = [rng.normal(size=shape) for shape in [(2, 8), (2,), (2, 8), (2,)]]
    cotangent = rng.normal(size=(2, 8))

    def loss(out, lse, value, logit):
        share = 1 / (1 + np.exp(lse - logit))[:, None]
        return (((1 - share) * out + share * value) * cotangent).sum()

    _, vjp = jax.vjp(merge_one, *map(jnp.float32, arguments))
    for which, gradient in enumerate(vjp(jnp.float32(cotangent))):
        for at in np.ndindex(gradient.shape):
            step = np.zeros(gradient.shape)
            step[at] = 1e-5
            up, down = (
                loss(*arguments[:which], arguments[which] + step * sign, *arguments[which + 1 :])
                for sign in (1, -1)
            )
            assert gradient[at] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-5)


def a_read(seed=0):
    case = make_case(3, READS, TOKENS, D, seed=seed)
    return attend(case.values, case.queries)


def empty(out, lse):
    return jnp.zeros_like(out), jnp.full_like(lse, -jnp.inf)


def test_merging_with_no_source_changes_nothing():
    read = a_read()
    assert_equal(merge(*read, *empty(*read)), read)
    assert_equal(merge(*empty(*read), *read), read)
    nothing = empty(*read)
    assert_equal(merge(*nothing, *nothing), nothing)


def test_gradients_pass_by_a_read_of_no_source():
    read = a_read()
    zeros, no_lse = empty(*read)
    cotangent = a_read(seed=1)
    _, vjp = jax.vjp(merge, *read, zeros, no_lse)
    d_out, d_lse, d_zeros, d_no_lse = vjp(cotangent)
    assert_equal((d_out, d_lse), cotangent)
    assert not d_zeros.any() and not d_no_lse.any()
    _, vjp = jax.vjp(merge, zeros, no_lse, zeros, no_lse)
    assert all(jnp.isfinite(d).all() for d in vjp(cotangent))


def test_merge_is_symmetric():
    a, b = a_read(), a_read(seed=1)
    for x, y in zip(merge(*a, *b), merge(*b, *a), strict=True):
        assert_close(x, np.float64(y), TOLERANCE)


@pytest.mark.parametrize("size", [1e4, 3e38])
def test_huge_logits_do_not_overflow(size):
    (a, lse), (b, _) = a_read(), a_read(seed=1)
    big = jnp.full_like(lse, size)
    assert_close(merge(a, big, b, -big)[0], np.float64(a), 1e-6)
    assert_close(merge(a, -big, b, big)[0], np.float64(b), 1e-6)
    middle = (np.float64(a) + np.float64(b)) / 2
    assert_close(merge(a, -big, b, -big)[0], middle, 1e-6)
    assert_close(mix([a, b], [big, -big]), np.float64(a), 1e-6)
    assert_close(mix([a, b], [-big, -big]), middle, 1e-6)
    for function in (lambda a, x, b, y: merge(a, x, b, y)[0], merge_one):
        _, vjp = jax.vjp(function, a, big, b, -big)
        assert all(jnp.isfinite(d).all() for d in vjp(a))


def test_a_source_with_logit_minus_infinity_is_not_there():
    (a, lse), (b, _) = a_read(), a_read(seed=1)
    absent = jnp.full_like(lse, -jnp.inf)
    out, vjp = jax.vjp(mix, [a, b], [absent, lse])
    assert_equal(out, b)
    (d_a, d_b), (d_absent, d_present) = vjp(a)
    assert_equal(d_b, a)
    assert not (d_a.any() or d_absent.any() or d_present.any())


def test_mixing_sources_that_are_all_absent_gives_zero():
    (a, lse), (b, _) = a_read(), a_read(seed=1)
    absent = jnp.full_like(lse, -jnp.inf)
    out, vjp = jax.vjp(mix, [a, b], [absent, absent])
    assert not out.any()
    assert not any(d.any() for d in jax.tree.leaves(vjp(a)))


def test_one_source_gives_itself_and_no_gradient_to_its_logit():
    a, lse = a_read()
    out, vjp = jax.vjp(mix, [a], [lse])
    assert_equal(out, a)
    assert not vjp(a)[1][0].any()


@pytest.mark.parametrize("container", [tuple, list])
def test_sources_come_in_a_tuple_or_a_list(container):
    case = make_case(3, READS, TOKENS, D)
    values, gain = container(case.values), case.gain
    logits = container([jnp.full(TOKENS, float(i)) for i in range(3)])
    _, vjp = jax.vjp(mix, values, logits)
    assert [type(d) for d in vjp(values[0])] == [container, container]
    (out, lse), vjp = jax.vjp(lambda v: depth_attention(v, gain, gain), values)
    assert type(vjp((out, lse))[0]) is container


def test_narrow_sources_are_mixed_and_merged_in_float32():
    case = make_case(5, 1, TOKENS, D, dtype="bfloat16")
    wide = [v.astype(jnp.float32) for v in case.values]
    logits = [jnp.full(TOKENS, 0.1 * i) for i in range(5)]
    assert_equal(mix(case.values, logits), mix(wide, logits).astype(jnp.bfloat16))
    narrow = merge(case.values[0], logits[0], case.values[1], logits[1])
    out, lse = merge(wide[0], logits[0], wide[1], logits[1])
    assert_equal(narrow, (out.astype(jnp.bfloat16), lse))
    assert (narrow[0].dtype, narrow[1].dtype) == (jnp.bfloat16, jnp.float32)
