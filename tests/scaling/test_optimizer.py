"""Schedules and optimizer groups."""

import jax.numpy as jnp
import numpy as np
import pytest

from scaling.optimizer import make_optimizer, schedule
from scaling.study import Train


def test_cosine_warms_up_from_the_first_step_and_ends_at_the_final_fraction():
    train = Train(learning_rate=1.0, warmup_fraction=0.1, final_learning_rate_fraction=0.1)
    rates = np.array([schedule(train, 100)(step) for step in range(101)])
    np.testing.assert_allclose(rates[:10], np.arange(1, 11) / 10, rtol=1e-6)
    progress = np.arange(91) / 90
    np.testing.assert_allclose(
        rates[10:], 0.1 + 0.9 * (1 + np.cos(np.pi * progress)) / 2, atol=1e-6
    )


def test_wsd_is_flat_until_its_decay():
    train = Train(learning_rate=2.0, schedule="wsd", warmup_fraction=0.0, decay_fraction=0.2)
    rates = np.array([schedule(train, 50)(step) for step in range(51)])
    assert (rates[:41] == 2.0).all()
    assert (np.diff(rates[40:]) < 0).all()
    assert rates[-1] == pytest.approx(0.2)


GROUPS = {"w": "matrix", "e": "embedding", "g": "vector"}
PARAMS = {"w": jnp.ones((3, 4, 4)), "e": jnp.ones((5, 4)), "g": jnp.ones((4,))}
ZEROS = {name: jnp.zeros_like(p) for name, p in PARAMS.items()}


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("decay_vectors", [False, True])
def test_vectors_decay_only_when_asked(optimizer, decay_vectors):
    train = Train(
        optimizer=optimizer, learning_rate=0.5, warmup_fraction=0, decay_vectors=decay_vectors
    )
    chain = make_optimizer(train, 10, GROUPS)
    updates, _ = chain.update(ZEROS, chain.init(PARAMS), PARAMS)
    assert float(updates["w"].max()) == pytest.approx(-0.05)
    assert float(updates["e"].max()) == pytest.approx(-0.05)
    assert float(updates["g"].max()) == pytest.approx(-0.05 * decay_vectors)


def test_muon_orthogonalises_each_layer_on_its_own():
    """Singular values of a Newton-Schulz update lie near one, whatever those of the gradient."""
    train = Train(optimizer="muon", learning_rate=1.0, warmup_fraction=0, weight_decay=0)
    chain = make_optimizer(train, 10, GROUPS)
    rng = np.random.default_rng(0)
    gradient = rng.normal(size=(3, 4, 4)) * np.array([1e-3, 1e-2, 1e-1])[:, None, None]
    grads = {**ZEROS, "w": jnp.float32(gradient)}
    updates, _ = chain.update(grads, chain.init(PARAMS), PARAMS)
    for layer in np.asarray(updates["w"]) / (0.2 * 4**0.5):  # consistent RMS
        values = np.linalg.svd(layer, compute_uv=False)
        assert values.min() > 0.5 and values.max() < 1.3


def test_gradients_are_clipped_to_the_global_norm():
    """Adam forgets the scale of a constant gradient, so the clip shows on a change of scale."""
    train = Train(learning_rate=1.0, warmup_fraction=0, weight_decay=0, clip_norm=1.0)
    chain = make_optimizer(train, 10, GROUPS)

    def second_update(scale):
        state = chain.init(PARAMS)
        small = {name: jnp.full_like(p, 1e-3) for name, p in PARAMS.items()}
        _, state = chain.update(small, state, PARAMS)
        big = {name: jnp.full_like(p, scale) for name, p in PARAMS.items()}
        return chain.update(big, state, PARAMS)[0]["g"]

    np.testing.assert_allclose(second_update(10.0), second_update(1000.0), rtol=1e-5)
