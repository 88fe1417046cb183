"""The head and its loss: against float64 NumPy, in chunks as in one piece, gradients included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import loss

B, T, D, V = 3, 8, 5, 11


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    x, head = rng.normal(size=(B, T, D)), rng.normal(size=(D, V))
    weights = rng.integers(0, 3, (B, T)).astype(float)
    return x, head, rng.integers(0, V, (B, T)), weights


def derivation(x, head, targets, weights):
    """-log softmax at the target; d logits = (softmax - one-hot) * weight."""
    logits = x @ head
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    nll = -np.log(np.take_along_axis(p, targets[..., None], -1))[..., 0]
    d_logits = (p - np.eye(V)[targets]) * weights[..., None]
    return nll, d_logits @ head.T, np.einsum("btd,btv->dv", x, d_logits)


def fp32(case):
    x, head, targets, weights = case
    f = lambda a: jnp.asarray(a, jnp.float32)  # noqa: E731
    return f(x), f(head), jnp.asarray(targets, jnp.int32), f(weights)


def close(found, expected):
    np.testing.assert_allclose(found, expected, atol=2e-6 * np.abs(expected).max())


@pytest.fixture(params=[loss.MAX_LOGITS, 4 * V, 1], ids=["whole", "chunks of 4", "one by one"])
def chunked(request, monkeypatch):
    monkeypatch.setattr(loss, "MAX_LOGITS", request.param)


@pytest.mark.usefixtures("chunked")
def test_losses_and_gradients_agree_with_the_equations(case):
    nll, dx, d_head = derivation(*case)
    x, head, targets, weights = fp32(case)
    close(loss.nll(x, head, targets), nll)
    scaled = lambda x, head, w: 0.5 * loss.nll_sum(x, head, targets, w)  # noqa: E731
    value, found = jax.value_and_grad(scaled, argnums=(0, 1, 2))(x, head, weights)
    close(value, 0.5 * np.sum(nll * case[3]))
    for gradient, expected in zip(found, (dx, d_head, nll), strict=True):
        close(gradient, 0.5 * expected)


def largest(jaxpr) -> int:
    """The most elements of any array that a program makes, loops and calls included."""
    sizes = [v.aval.size for eqn in jaxpr.eqns for v in eqn.outvars]
    for eqn in jaxpr.eqns:
        for inner in jax.tree.leaves(
            list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")
        ):
            if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                sizes.append(largest(getattr(inner, "jaxpr", inner)))
    return max(sizes, default=0)


def test_logits_never_exist_whole(monkeypatch):
    monkeypatch.setattr(loss, "MAX_LOGITS", 2**16)
    shape = jax.ShapeDtypeStruct
    args = (
        shape((2, 256, 8), jnp.float32),
        shape((8, 4096), jnp.float32),
        shape((2, 256), jnp.int32),
        shape((2, 256), jnp.float32),
    )
    gradient = jax.make_jaxpr(jax.value_and_grad(loss.nll_sum, argnums=(0, 1)))(*args)
    assert 2**15 <= largest(gradient.jaxpr) <= 2**16  # the head has 2**15, all logits 2**21
    alone = jax.make_jaxpr(loss.nll)(*args[:3])
    assert largest(alone.jaxpr) <= 2**16


def test_a_token_takes_three_matrix_products(case):
    """Forward, dx and d_head, from the same logits."""
    x, head, targets, weights = fp32(case)
    text = str(jax.make_jaxpr(jax.grad(loss.nll_sum, argnums=(0, 1)))(x, head, targets, weights))
    assert text.count("dot_general") == 3


def test_bf16_costs_precision_of_the_logits_alone(case):
    nll, _, d_head = derivation(*case)
    x, head, targets, weights = fp32(case)
    half = x.astype(jnp.bfloat16)
    value, gradient = jax.value_and_grad(loss.nll_sum, argnums=1)(half, head, targets, weights)
    assert value.dtype == gradient.dtype == jnp.float32
    np.testing.assert_allclose(value, np.sum(nll * case[3]), rtol=0.01)
    assert np.abs(gradient - d_head).max() < 0.02 * np.abs(d_head).max()
