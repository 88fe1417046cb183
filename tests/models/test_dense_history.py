"""Residual connections over a dense history: identities, sources, and what they refuse.

Reads are compared in the toy layers of the contract, where a mechanism is alone with itself.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.depth import walk
from models.params import axes, groups
from models.residuals import find
from models.taps import Tapped
from models.transformer import make_residual
from scaling.contract.toy import ToyLayers, inputs_and_readout


@pytest.fixture(scope="module")
def x_BTD():
    return jax.random.normal(jax.random.key(3), (2, 3, 16))


def connection(make_cfg, name, options=None, **fields):
    cfg = make_cfg(name, options, scan=False, seq_len=3, norm_eps=1e-12, **fields)
    return make_residual(cfg, jax.random.key(0))


def draw(shape, seed=4):
    return jax.random.normal(jax.random.key(seed), shape)


def assert_same_reads(one, other, x_BTD, up_to_scale=False):
    """Inputs of all sublayers, queries' ones where attention has several, and the readout."""
    for a, b in zip(*(inputs_and_readout(r, x_BTD) for r in (one, other)), strict=True):
        for way in a if isinstance(a, tuple) else [a]:
            if up_to_scale:
                way, b = (x / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in (way, b))
            np.testing.assert_allclose(way, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norms", ["none", "prepost"])
@pytest.mark.parametrize("ways", [1, 4])
def test_mudd_starts_as_prenorm(ways, norms, make_cfg, x_BTD):
    mudd = connection(make_cfg, "mudd", {"ways": ways, "norms": norms})
    assert_same_reads(mudd, connection(make_cfg, "prenorm"), x_BTD)


def test_mudd_of_one_way_whose_weights_ignore_the_token_is_denseformer(make_cfg, x_BTD):
    mudd = connection(make_cfg, "mudd", {"ways": 1})
    assert all((w2[...] == 0).all() for w2 in mudd.w2)
    priors = [draw(prior.shape, seed) for seed, prior in enumerate(mudd.prior)]
    for prior, value in zip(mudd.prior, priors, strict=True):
        prior[...] = value
    denseformer = connection(make_cfg, "denseformer")
    denseformer.alpha[...] = jnp.concatenate([prior[0] for prior in priors])
    assert_same_reads(mudd, denseformer, x_BTD)


@pytest.mark.parametrize("k", [1, 2, None])
def test_dca_without_gates_is_prenorm(k, make_cfg, x_BTD):
    dca, prenorm = connection(make_cfg, "dca", {"k": k}), connection(make_cfg, "prenorm")
    dca.weight[...], dca.final_weight[...] = 0 * dca.weight[...], 0 * dca.final_weight[...]
    assert_same_reads(dca, prenorm, x_BTD)


@pytest.mark.parametrize("kind", ["elmo", "densenet", "sk"])
def test_mixers_start_as_a_multiple_of_prenorm(kind, make_cfg, x_BTD):
    mixer, prenorm = connection(make_cfg, "mixer", {"kind": kind}), connection(make_cfg, "prenorm")
    assert_same_reads(mixer, prenorm, x_BTD, up_to_scale=True)


def test_lime_with_identity_routes_is_prenorm(make_cfg, x_BTD):
    prenorm = connection(make_cfg, "prenorm")
    assert_same_reads(connection(make_cfg, "lime", {"init": "identity"}), prenorm, x_BTD)
    lime = connection(make_cfg, "lime")
    for route in lime.route:
        bound = (3 / route.shape[1]) ** 0.5
        earlier, own = route[:, :-2], route[:, -2:]
        assert 0.5 * bound < jnp.abs(earlier).max() <= bound and (own == jnp.eye(2)).all()
    with pytest.raises(AssertionError):
        assert_same_reads(lime, prenorm, x_BTD)


def test_mrla_starts_as_prenorm(make_cfg, x_BTD):
    assert_same_reads(connection(make_cfg, "mrla"), connection(make_cfg, "prenorm"), x_BTD)


@pytest.mark.parametrize(("dilation", "period"), [(1, 1), (2, 1), (1, 2), (3, 2)])
def test_denseformer_in_closed_form(dilation, period, make_cfg, x_BTD):
    """Y_i = sum over j = i, i - k, .. of alpha_ij X_j after every p-th layer, X_i elsewhere."""
    options = {"dilation": dilation, "period": period}
    residual = connection(make_cfg, "denseformer", options)
    assert_same_reads(residual, connection(make_cfg, "prenorm"), x_BTD)  # alpha_ii = 1, others 0

    alpha = draw(residual.alpha.shape)
    residual.alpha[...] = alpha
    reads, outputs = [], [x_BTD]

    def tap(x, y):
        if len(reads) % 2:
            outputs.append(x + y)
        reads.append(x)
        return y

    reads.append(walk(residual, x_BTD, Tapped(ToyLayers(residual.cfg), tap)))
    weights = iter(np.asarray(alpha))
    for i, y_BTD in enumerate(reads[::2]):
        expected = outputs[i]
        if i and i % period == 0:
            J = [j for j in range(i + 1) if (i - j) % dilation == 0]
            assert len(J) == (i + dilation) // dilation
            expected = sum(next(weights) * outputs[j] for j in J)
        np.testing.assert_allclose(y_BTD, expected, rtol=1e-5, atol=1e-5)
    assert next(weights, None) is None


def test_ancre_adds_the_mean_of_all_states_at_first(make_cfg, x_BTD):
    residual, states = connection(make_cfg, "ancre"), [x_BTD]
    layer_outputs = []

    def tap(x, y):
        layer_outputs.append(x + y)
        return y

    out_BTD = walk(residual, x_BTD, Tapped(ToyLayers(residual.cfg), tap))
    for output_BTD in layer_outputs[1::2]:
        states.append(output_BTD + sum(states) / len(states))
    np.testing.assert_allclose(out_BTD, states[-1], rtol=1e-5)


def test_how_many_sources_each_read_has(make_cfg):
    shapes = lambda parameters: [p.shape for p in parameters]  # noqa: E731
    counts = {1: [1, 2, 3, 3, 3], 2: [1, 2, 3, 4, 4], 4: [1, 2, 3, 4, 5], None: [1, 2, 3, 4, 5]}
    for k, expected in counts.items():
        dca = connection(make_cfg, "dca", {"k": k})
        assert shapes(dca.bias) == [(3, n, 16) for n in expected[:-1]]
        assert dca.final_bias.shape == (expected[-1], 16)
    mudd = connection(make_cfg, "mudd")
    assert shapes(mudd.prior) == [(4, 2), (4, 3), (4, 4), (1, 5)]
    assert shapes(mudd.w1) == [(16, 64)] * 4  # the fewest, 8 .. 20 rounded up
    assert find("mudd").shapes(mudd.cfg.model_copy(update={"n_layers": 16}))[-2:] == [
        (4, 16, 128),  # 64 rounds up too
        (1, 17, 128),  # 4 * 17
    ]
    assert shapes(connection(make_cfg, "lime").route) == [(2, 4), (2, 6), (2, 8)]
    assert shapes(connection(make_cfg, "mixer", {"kind": "densenet"}).weight) == [
        (n * 16, 16) for n in range(2, 10)
    ]


def test_mrla_kernels_are_as_wide_as_the_formula_says():
    sizes = {D: find("mrla").kernel_size(_Width(D)) for D in (2, 16, 32, 120, 768, 1024)}
    t = {D: int((np.log2(D) + 1) / 2) for D in sizes}
    assert sizes == {D: t[D] if t[D] % 2 else t[D] + 1 for D in sizes}


class _Width:
    def __init__(self, d_model):
        self.d_model = d_model


def test_lists_of_parameters_are_pure_dicts_too(make_cfg):
    """Twelve layers, since 10 sorts before 2 among strings."""
    residual = connection(make_cfg, "dca", {"k": None}, n_layers=12)
    graphdef, state = nnx.split(residual)
    params = nnx.to_pure_dict(state)
    assert list(params["bias"]) == list(range(12))
    assert jax.tree.structure(params) == jax.tree.structure(groups(residual))
    assert axes(residual)["bias"][11] == (None, None, "features")
    merged = nnx.merge(graphdef, jax.tree.map(lambda x: x + 1, params))
    assert [bias.shape[1] for bias in merged.bias] == list(range(1, 13))
    assert (merged.bias[11][...] == 2).all()


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("denseformer", {"dilation": 5}, "dilation 5 is more than the 4 layers"),
        ("denseformer", {"period": 5}, "period 5 is more than the 4 layers"),
        ("denseformer", {"dilation": 0}, "greater than or equal to 1"),
        ("mudd", {"ways": 2}, "ways"),
        ("mudd", {"norms": "post"}, "norms"),
        ("dca", {"k": 5}, "k 5 is more than the 4 layers"),
        ("dca", {"k": 0}, "greater than or equal to 1"),
        ("lime", {"init": "zero"}, "init"),
        ("ancre", {"tau": 0.0}, "greater than 0"),
        ("mrla", {"head_dim": 5}, "head_dim 5 does not divide d_model 16"),
        ("mixer", {"kind": "mean"}, "kind"),
    ],
)
def test_refusals(name, options, complaint, make_cfg):
    with pytest.raises(ValueError, match=complaint):
        find(name).options(make_cfg(name, options))


def test_one_layer_has_fewer_sources_than_dca_keeps(make_cfg, x_BTD):
    dca = connection(make_cfg, "dca", n_layers=1)
    assert dca.options(dca.cfg).k == 1
    assert inputs_and_readout(dca, x_BTD)[-1].shape == x_BTD.shape
