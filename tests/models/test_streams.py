"""What must hold of connections with several streams, and of their relatives (DDL), by algebra."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.depth import final_state, walk
from models.residuals.base import State
from models.residuals.mhc import sinkhorn
from models.residuals.streams import Mix
from models.taps import Tapped
from models.transformer import make_residual
from scaling.contract.toy import ToyLayers, inputs_and_readout

NAMES = ("hc", "mhc", "mhc_lite", "ihc")


@pytest.fixture
def make(make_cfg):
    """residual(name, options, n_layers, **params): with these parameters instead of the first."""

    def make(name, options=None, n_layers=2, **params):
        cfg = make_cfg(name, options, d_model=8, n_layers=n_layers, scan=False)
        residual = make_residual(cfg, jax.random.key(0))
        nnx.update(residual, params)
        return residual

    return make


def draw(*shape, seed=1):
    return jax.random.normal(jax.random.key(seed), shape)


def some_streams(n, seed=2):
    return tuple(draw(n, 2, 3, 8, seed=seed))


def scrambled(residual):
    """With random numbers for parameters, so that streams mix well and each token differently."""
    nnx.update(residual, jax.tree.map(lambda p: 0.5 * draw(*p.shape), nnx.split(residual)[1]))
    return residual


def mixes(residual, streams) -> Mix:
    """The weights of every sublayer if each saw these streams, [S, ...] in every leaf."""
    graphdef, params = nnx.split(residual)

    def one(row):
        return nnx.merge(graphdef, row).prepare(State((), streams), 0).own

    return jax.vmap(one)(params)


def matrices(mix: Mix, token=()) -> np.ndarray:
    """A of every sublayer, [S, n, n]; stream t of the result is sum_s A[s, t] x_s."""
    rows = [[np.asarray(w, np.float64)[(slice(None), *token)] for w in row] for row in mix.comb]
    return np.moveaxis(np.array(rows), -1, 0)


def mixed(residual, streams):
    """The streams after sublayer 0, if it put out nothing."""
    graphdef, params = nnx.split(residual)
    row = nnx.merge(graphdef, jax.tree.map(lambda p: p[0], params))
    state = row.prepare(State((), streams), 0)
    return row.write(state, 0, jnp.zeros((2, 3, 8))).carry


@pytest.mark.parametrize("dynamic", [False, True])
def test_hyper_connections_with_one_stream_are_prenorm(make, dynamic):
    x_BTD = draw(2, 3, 8)
    one = make("hc", {"n_streams": 1, "dynamic": dynamic})
    for found, expected in zip(
        inputs_and_readout(one, x_BTD), inputs_and_readout(make("prenorm"), x_BTD), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_identity_hc_is_manifold_hc_that_mixes_nothing(make):
    n, S, D = 3, 4, 8
    phi, scale, base = draw(S, n * D, 2 * n), draw(S, 2, seed=2), draw(S, 2 * n, seed=3)
    head = {"head_phi": draw(n * D, n), "head_base": draw(n, seed=4)}
    ihc = make("ihc", {"n_streams": n}, phi=phi, scale=scale, base=base, **head)
    identity = jnp.tile(50 * jnp.eye(n).reshape(1, -1), (S, 1))
    mhc = make(
        "mhc",
        {"n_streams": n, "readout": "head"},
        phi=jnp.concatenate([phi, jnp.zeros((S, n * D, n * n))], axis=2),
        scale=jnp.concatenate([scale, jnp.ones((S, 1))], axis=1),
        base=jnp.concatenate([base, identity], axis=1),
        **head,
    )
    x_BTD = draw(2, 3, D, seed=5)
    for found, expected in zip(
        inputs_and_readout(ihc, x_BTD), inputs_and_readout(mhc, x_BTD), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)  # Sinkhorn's epsilons


@pytest.mark.parametrize("which", range(6))
def test_one_permutation_of_mhc_lite_permutes_the_streams(make, which):
    permutation = list(itertools.permutations(range(3)))[which]
    base = jnp.zeros((4, 12)).at[:, 6 + which].set(200.0)
    streams = some_streams(3)
    after = mixed(make("mhc_lite", {"n_streams": 3}, base=base), streams)
    np.testing.assert_array_equal(after, [streams[j] for j in permutation])


@pytest.mark.parametrize("name", ["mhc", "hc"])
def test_matrices_are_applied_the_right_way_round(make, name):
    """x'_k = sum_j A[j, k] x_j: the second index is the stream that receives (the papers' A^T H).

    A cycle is doubly stochastic and not symmetric, so that the transpose is wrong in silence.
    """
    cycle = jnp.roll(jnp.eye(3), 1, axis=1)  # from j to j + 1
    if name == "mhc":
        base = jnp.tile(jnp.concatenate([jnp.zeros(6), 50 * cycle.reshape(-1)])[None], (4, 1))
        residual = make("mhc", {"n_streams": 3}, base=base, phi=jnp.zeros((4, 24, 15)))
    else:
        alpha = jnp.tile(jnp.concatenate([jnp.ones((3, 1)), cycle], axis=1)[None], (4, 1, 1))
        residual = make("hc", {"n_streams": 3}, static_alpha=alpha)
    streams = some_streams(3)
    after = mixed(residual, streams)
    np.testing.assert_allclose(after, [streams[2], streams[0], streams[1]], atol=1e-4)


def test_inputs_are_the_depth_mixing_matrix_of_hyper_connections(make):
    """M_{i -> l} = beta_i A_{i+1} .. A_{l-1} alpha_l (arXiv 2603.15031, Eq. 10), all static."""
    n, S = 3, 6
    alpha, beta = draw(S, n, n + 1, seed=3), draw(S, n, seed=4)
    residual = make(
        "hc", {"n_streams": n, "dynamic": False}, 3, static_alpha=alpha, static_beta=beta
    )
    x_BTD, outputs, inputs = draw(2, 3, 8), draw(S, 2, 3, 8, seed=5), []

    def replace(x, y):
        inputs.append(x)
        return outputs[len(inputs) - 1]

    walk(residual, x_BTD, Tapped(ToyLayers(residual.cfg), replace))
    values = np.concatenate([x_BTD[None], outputs])
    written = np.concatenate([np.ones((1, n)), beta])
    for site in range(S):
        expected = 0
        for i, weights in enumerate(written[: site + 1]):  # value i is written by sublayer i - 1
            for A in np.asarray(alpha[i:site, :, 1:]):
                weights = weights @ A
            expected += (weights @ alpha[site, :, 0]) * values[i]
        np.testing.assert_allclose(inputs[site], expected, rtol=1e-4, atol=1e-4)


def test_sinkhorns_matrices_are_doubly_stochastic():
    m = np.asarray(sinkhorn(draw(4, 4, 100), iterations=20))
    assert (m > 0).all()
    np.testing.assert_allclose(m.sum(axis=0), 1, atol=1e-5)
    np.testing.assert_allclose(m.sum(axis=1), 1, atol=1e-3)


@pytest.mark.parametrize("name", ["mhc", "mhc_lite"])
def test_mixing_is_doubly_stochastic_and_leaves_equal_streams_alone(make, name):
    residual = scrambled(make(name, {"n_streams": 3}))
    A = matrices(mixes(residual, some_streams(3)), (1, 2))
    assert np.abs(A - np.eye(3)).max() > 0.1
    np.testing.assert_allclose(A.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(A.sum(axis=2), 1, atol=1e-3)
    equal = some_streams(1) * 3
    np.testing.assert_allclose(mixed(residual, equal), equal, rtol=1e-2, atol=1e-4)


def composite_gain(A: np.ndarray) -> float:
    """The largest factor by which all matrices in a row raise a signal, forward or backward."""
    product = np.abs(np.linalg.multi_dot(A))
    return max(product.sum(axis=0).max(), product.sum(axis=1).max())


@pytest.mark.parametrize("name", ["mhc", "mhc_lite"])
def test_composite_gain_of_64_layers_is_bounded_on_the_manifold(make, name):
    residual = scrambled(make(name, {"n_streams": 4}, n_layers=64))
    A = matrices(mixes(residual, some_streams(4)), (0, 0))
    assert len(A) == 128 and composite_gain(A) < 1.1


def test_composite_gain_of_unconstrained_matrices_grows(make):
    alpha = jnp.concatenate([jnp.ones((128, 4, 1)), jnp.tile(1.05 * jnp.eye(4), (128, 1, 1))], 2)
    A = matrices(mixes(make("hc", n_layers=64, static_alpha=alpha), some_streams(4)), (0, 0))
    assert composite_gain(A) > 400


def trained(residual, steps=3):
    """After some steps of plain gradient descent: Adam would amplify rounding errors."""
    x_BTD, target_BTD = draw(2, 3, 8), draw(2, 3, 8, seed=7)
    layers = ToyLayers(residual.cfg)
    graphdef, params = nnx.split(residual)

    @jax.jit
    @jax.grad
    def gradient(params):
        out_BTD = walk(nnx.merge(graphdef, params), x_BTD, layers)
        return jnp.mean(jnp.square(out_BTD - target_BTD))

    for _ in range(steps):
        params = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient(params))
    residual = nnx.merge(graphdef, params)
    return residual.streams(final_state(residual, x_BTD, layers))


def spread(streams) -> float:
    a, b = streams
    return float(jnp.linalg.norm(a - b) / jnp.linalg.norm(a))


@pytest.mark.parametrize("name", NAMES)
def test_streams_that_start_alike_part(make, name):
    assert spread(trained(make(name, {"n_streams": 2}))) > 1e-4


def test_streams_without_a_home_would_never_part(make):
    """The trap: nothing tells one stream from another, so their gradients are equal forever."""
    symmetric = jnp.zeros((4, 8)).at[:, 4:].set(jnp.array([0.0, -8, -8, 0]))
    residual = make("mhc", {"n_streams": 2}, phi=jnp.zeros((4, 16, 8)), base=symmetric)
    assert spread(trained(residual)) < 1e-6


@pytest.mark.parametrize("beta", [0.3, 1.0, 1.9])
def test_the_delta_rule_scales_one_direction_by_one_minus_beta(make, beta):
    """Eigenvalues of I - beta k k^T, where nothing is written (v = 0)."""
    residual = make("ddl", {"beta_init": beta}, value_bias=jnp.full((4, 1), -1e4))
    graphdef, params = nnx.split(residual)
    row = nnx.merge(graphdef, jax.tree.map(lambda p: p[0], params))
    y_BTD = draw(1, 1, 8, seed=3)

    def rewritten(x_D):
        state = row.prepare(State((), (x_D[None, None],)), 0)
        return row.write(state, 0, y_BTD).carry[0][0, 0]

    J = np.asarray(jax.jacobian(rewritten)(draw(8)))
    np.testing.assert_allclose(J, J.T, atol=1e-6)
    expected = sorted([1 - beta, *[1.0] * 7])
    np.testing.assert_allclose(np.linalg.eigvalsh(J), expected, atol=1e-5)
    np.testing.assert_allclose(J @ y_BTD[0, 0], (1 - beta) * y_BTD[0, 0], atol=1e-5)
