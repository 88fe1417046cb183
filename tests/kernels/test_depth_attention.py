"""Depth attention against a float64 NumPy derivation, forward and backward."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels import depth_attention, mix, score

D, EPS = 24, 1e-6


def sources(n, shape=(3, 5), seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(*shape, D)) * 10.0 ** rng.integers(-2, 3) for _ in range(n)]


def derivation(values, w):
    """out and lse for one query, float64."""
    logits = np.stack([v @ w / np.sqrt(np.mean(v**2, -1) + EPS) for v in values])
    lse = np.log(np.exp(logits - logits.max(0)).sum(0)) + logits.max(0)
    p = np.exp(logits - lse)
    return np.einsum("n...,n...d->...d", p, np.stack(values)), lse


@pytest.mark.parametrize("n", [1, 2, 7])
def test_scored_and_direct_forms_agree_with_the_derivation(n):
    values = sources(n)
    rng = np.random.default_rng(1)
    queries, gain = rng.normal(size=(4, D)), rng.uniform(0.5, 2, size=(4, D))
    as32 = [jnp.asarray(v, jnp.float32) for v in values]
    out, lse = depth_attention(as32, jnp.float32(queries), jnp.float32(gain), eps=EPS)
    for s in range(4):
        expected, expected_lse = derivation(values, queries[s] * gain[s])
        scale = np.abs(expected).max()
        np.testing.assert_allclose(out[s], expected, atol=1e-5 * scale)
        np.testing.assert_allclose(lse[s], expected_lse, rtol=1e-5, atol=1e-5)
        logits = [score(v, jnp.float32(queries * gain), eps=EPS)[s] for v in as32]
        np.testing.assert_allclose(mix(as32, logits), expected, atol=1e-5 * scale)


def test_gradients_agree_with_finite_differences_in_float64():
    values, w = sources(3, shape=(2,)), np.random.default_rng(2).normal(size=D)
    values = [v / np.abs(v).max() for v in values]
    cotangent = np.random.default_rng(3).normal(size=(2, D))

    def loss(values, w):
        return (derivation(values, w)[0] * cotangent).sum()

    def run(values, w):
        out = mix(values, [score(v, w[None], eps=EPS)[0] for v in values])
        return jnp.sum(out * jnp.float32(cotangent))

    d_values, d_w = jax.grad(run, argnums=(0, 1))([jnp.float32(v) for v in values], jnp.float32(w))
    step = 1e-5
    for k in range(0, D, 5):
        shift = np.eye(D)[k] * step
        numeric = (loss(values, w + shift) - loss(values, w - shift)) / (2 * step)
        assert d_w[k] == pytest.approx(numeric, rel=1e-3, abs=1e-4)
        for i in range(3):
            moved = [v + shift * (j == i) for j, v in enumerate(values)]
            back = [v - shift * (j == i) for j, v in enumerate(values)]
            numeric = (loss(moved, w) - loss(back, w)) / (2 * step)
            assert d_values[i][:, k].sum() == pytest.approx(numeric, rel=1e-3, abs=1e-4)


def test_one_source_gives_itself_and_no_gradient_to_its_query():
    v, w = jnp.float32(sources(1)[0]), jnp.ones((1, D))
    np.testing.assert_array_equal(mix([v], [score(v, w)[0]]), v)
    grad = jax.grad(lambda w: jnp.sum(jnp.square(mix([v], [score(v, w)[0]]))))(w)
    assert (grad == 0).all()


def test_sources_may_come_as_a_tuple():
    values = tuple(jnp.float32(v) for v in sources(3))
    logits = tuple(jnp.full((3, 5), float(i)) for i in range(3))
    grads = jax.grad(lambda v, z: mix(v, z).sum(), argnums=(0, 1))(values, logits)
    assert [type(g) for g in grads] == [tuple, tuple]


def test_huge_and_missing_logits():
    a, b = (jnp.float32(v) for v in sources(2))
    big = jnp.full((3, 5), 1e4)
    np.testing.assert_allclose(mix([a, b], [big, -big]), a)
    np.testing.assert_allclose(mix([a, b], [jnp.full((3, 5), -jnp.inf), big]), b)


def test_bfloat16_sources_are_mixed_in_float32():
    values = [jnp.asarray(v, jnp.bfloat16) for v in sources(5)]
    logits = [jnp.full((3, 5), 0.1 * i) for i in range(5)]
    out = mix(values, logits)
    exact = mix([v.astype(jnp.float32) for v in values], logits)
    np.testing.assert_array_equal(out, exact.astype(jnp.bfloat16))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda v, w: depth_attention([], w, w), "no source given"),
        (lambda v, w: depth_attention([v, v[:1]], w, w), "one shape and dtype"),
        (lambda v, w: score(v, w[:, :8]), "width 24 and the queries 8"),
        (lambda v, w: mix([v], []), "1 sources and 0 logits"),
    ],
)
def test_bad_arguments_are_named(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(jnp.float32(sources(1)[0]), jnp.ones((1, D)))
