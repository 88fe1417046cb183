"""The training step: token-weighted accumulation, pairing of variants, metrics."""

import jax
import jax.numpy as jnp
import numpy as np

from scaling.step import Program


def batch(weights=None):
    tokens = np.random.default_rng(0).integers(1, 256, size=(4, 33), dtype=np.int32)
    full = {"tokens": tokens}
    return full if weights is None else {**full, "weights": weights}


def test_accumulation_weighs_by_token(make_cell):
    """Micro-batches of very different token counts: a mean of their means would be off."""
    weights = np.zeros((4, 32), np.float32)
    for row, n in enumerate((32, 3, 1, 17)):
        weights[row, :n] = 1
    once, four = (Program(make_cell(accumulate=n)) for n in (1, 4))
    params = once.init()["params"]
    loss, grads = jax.jit(once.gradients)(params, batch(weights))
    split_loss, split_grads = jax.jit(four.gradients)(params, batch(weights))
    np.testing.assert_allclose(split_loss, loss, rtol=1e-6)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6 * np.abs(b).max() + 1e-9),
        split_grads,
        grads,
    )
    # The naive mean of micro-batch means differs by far more than rounding.
    means = [
        once.nll_sum(params, jax.tree.map(lambda x, i=i: x[i : i + 1], batch(weights)))
        for i in range(4)
    ]
    naive = np.mean([float(total / count) for total, count in means])
    assert abs(naive - float(loss)) > 1e-4


def test_a_step_reports_what_is_not_finite(make_cell):
    program = Program(make_cell())
    state = program.init()
    step = jax.jit(program.train_step)
    _, metrics = step(state, batch())
    assert bool(metrics["finite"]) and float(metrics["grad_norm"]) > 0
    broken = jax.tree.map(lambda x: x, state)
    broken["params"]["embed"] = state["params"]["embed"].at[3, 0].set(jnp.nan)
    tokens = batch()
    tokens["tokens"][0, 0] = 3
    _, metrics = step(broken, tokens)
    assert not bool(metrics["finite"])


def test_variants_start_with_one_loss(make_cell):
    """Paired by design: at step 0 every variant is the same function of the same batch."""
    losses = []
    for variant in ("prenorm", "attnres_block", "attnres_full"):
        program = Program(make_cell(variant))
        total, count = program.nll_sum(program.init()["params"], batch())
        losses.append(float(total / count))
    np.testing.assert_allclose(losses, losses[0], rtol=1e-4)
