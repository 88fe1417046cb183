"""What must hold for residual connections of one stream, beyond the contract of all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.depth import walk
from models.residuals import find
from models.residuals.arithmetic import rms_norm
from models.taps import Tapped
from models.transformer import make_residual
from scaling.contract.toy import ToyLayers
from scaling.step import init_params

S, L, D = 8, 4, 16
X_BTD = rms_norm(jax.random.normal(jax.random.key(7), (2, 3, D)), 0.0)


@pytest.fixture
def run(make_cfg):
    """run(name, options, **parameters): inputs and outputs of all sublayers, and the readout."""

    def run(name, options=None, **parameters):
        cfg = make_cfg(name, options, scan=False, norm_eps=1e-12)
        residual, taps = make_residual(cfg, jax.random.key(0)), []
        for parameter, value in parameters.items():
            variable = getattr(residual, parameter)
            variable[...] = jnp.broadcast_to(jnp.float32(value), variable.shape)

        def tap(h, y):
            taps.append((h, y))
            return y

        out_BTD = walk(residual, X_BTD, Tapped(ToyLayers(cfg), tap))
        inputs, outputs = zip(*taps, strict=True)
        return inputs, outputs, out_BTD

    return run


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "options", "parameters"),
    [
        ("rescaled", {}, {}),
        ("rezero", {}, {"alpha": 1.0}),
        ("layerscale", {"init": -3.0}, {"scale": 1.0}),
        ("residual_scalars", {"init": "nanochat"}, {"keep": 1.0, "embed": 0.0}),
        ("highway", {"coupled": False, "bias": 40.0}, {}),
        ("laurel", {"form": "rw"}, {"weights": 3.0}),
        ("laurel", {"form": "pa", "k": 8}, {"gamma": 5.0}),
        ("siamese", {}, {"x_gain": 0.0}),
    ],
)
def test_prenorm_is_a_special_case(run, name, options, parameters):
    """Up to a positive factor a token, which norms undo."""
    inputs, _, out_BTD = run(name, options, **parameters)
    expected_inputs, _, expected_out_BTD = run("prenorm")
    for h, expected in zip([*inputs, out_BTD], [*expected_inputs, expected_out_BTD], strict=True):
        close(rms_norm(h, 1e-12), rms_norm(expected, 1e-12))


def test_rescaled_reads_means(run):
    inputs, outputs, out_BTD = run("rescaled")
    for n, h_BTD in enumerate([*inputs, out_BTD]):
        close(h_BTD, np.mean([X_BTD, *outputs[:n]], axis=0))


def test_constant_gates_break_a_stick(run):
    """Source i has the weight g_i prod_{i<j<l} (1 - g_j) in h_l: non-negative, and one in sum."""
    bias_S = np.linspace(-3, 2, S)
    inputs, outputs, out_BTD = run("highway", bias=bias_S)
    gate = np.concatenate([[1.0], 1 / (1 + np.exp(-bias_S))])  # the embedding's is the stick itself
    for n, h_BTD in enumerate([*inputs, out_BTD]):
        weights = [gate[i] * np.prod(1 - gate[i + 1 : n + 1]) for i in range(n + 1)]
        assert sum(weights) == pytest.approx(1)
        close(h_BTD, sum(w * v for w, v in zip(weights, [X_BTD, *outputs[:n]], strict=True)))


def test_gates_of_all_shapes_agree_where_they_are_constant(run):
    expected = run("highway", {"bias": -1.0})[2]
    close(run("highway", {"gate": "full", "bias": -1.0})[2], expected)
    close(run("highway", {"gate": "low_rank", "rank": 3, "bias": -1.0})[2], expected)


def test_a_low_rank_gate_is_a_full_one_of_their_product(run):
    rng = np.random.default_rng(0)
    down, up = rng.normal(size=(S, D, 3)), rng.normal(size=(S, 3, D))
    low_rank = run("highway", {"gate": "low_rank", "rank": 3}, down=down, up=up)
    close(low_rank[2], run("highway", {"gate": "full"}, weight=down @ up)[2])


def test_streams_after_a_norm_have_unit_rms(run):
    for name in ("postnorm", "deepnorm", "keel"):
        inputs, _, out_BTD = run(name)
        for x_BTD in (*inputs[1:], out_BTD):
            close(jnp.mean(jnp.square(x_BTD), axis=-1), 1.0)


def test_keel_with_a_skip_of_one_is_postnorm_of_normalised_embeddings(run):
    close(run("keel", {"alpha": 1.0})[2], run("postnorm")[2])
    close(run("keel")[2], run("keel", {"alpha": float(S)})[2])


def test_sandwich_adds_outputs_of_one_size(run):
    _, outputs, out_BTD = run("sandwich", {"embedding_norm": False}, gain=0.5)
    assert max(jnp.mean(jnp.square(y)) for y in outputs) < 1
    close(out_BTD, X_BTD + 0.5 * sum(rms_norm(y, 1e-12) for y in outputs))


def test_a_sum_of_one_stream_before_the_map_is_laurel_lr(run):
    rng = np.random.default_rng(1)
    matrices = {"down": rng.normal(size=(S, D, 8)) / 4, "up": rng.normal(size=(S, 8, D)) / 4}
    _, _, out_BTD = run("laurel", {"form": "pa", "k": 1}, **matrices)
    close(out_BTD, run("laurel", **matrices)[2])
    assert not np.allclose(out_BTD, run("laurel", {"form": "pa", "k": 2}, **matrices)[2], atol=0.1)


def test_deepnorm_scales_what_outputs_are_linear_in(make_cfg):
    base, scaled = (
        init_params(make_cfg(name), seed=0)["layers"] for name in ("prenorm", "deepnorm")
    )
    factor = (8 * L) ** -0.25
    for name in ("v", "out"):
        close(scaled["attn"][name], factor * base["attn"][name])
    for name in ("gate", "up", "down"):
        close(scaled["mlp"][name], factor * base["mlp"][name])
    for name in ("q", "k"):
        np.testing.assert_array_equal(scaled["attn"][name], base["attn"][name])


@pytest.mark.parametrize("n_layers", [1, 4])
def test_nanochat_scalars(make_cfg, n_layers):
    cfg = make_cfg("residual_scalars", {"init": "nanochat"}, n_layers=n_layers)
    residual = make_residual(cfg, jax.random.key(0))
    close(residual.keep[...], [1.15, 1.1166667, 1.0833333, 1.05][:n_layers])
    close(residual.embed[...], [0.20, 0.15, 0.10, 0.05][:n_layers])


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("postnorm", {"alpha": 1.0}, "alpha"),
        ("keel", {"alpha": 0.0}, "greater than 0"),
        ("layerscale", {"init": 0.0}, "init is 0"),
        ("layerscale", {"init": float("nan")}, "finite"),
        ("residual_scalars", {"init": "zero"}, "'neutral' or 'nanochat'"),
        ("highway", {"gate": "matrix"}, "'scalar', 'low_rank' or 'full'"),
        ("highway", {"rank": 4}, "rank 4 is for gate low_rank, not scalar"),
        ("highway", {"gate": "low_rank", "rank": 17}, "rank 17 must be 1 to d_model 16"),
        ("laurel", {"rank": 17}, "rank 17 must be 1 to d_model 16"),
        ("laurel", {"form": "pa", "k": 9}, "k 9 must be 1 to the 8 sublayers"),
        ("laurel", {"k": 2}, "k 2 is given, and form lr has none"),
        ("laurel", {"form": "rw", "rank": 2}, "rank 2 is given, and form rw has none"),
    ],
)
def test_options_that_do_not_fit_are_refused(make_cfg, name, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        find(name).options(make_cfg(name, options))


@pytest.mark.parametrize("name", ["highway", "laurel", "keel"])
def test_options_once_resolved_stay_so(make_cfg, name):
    for options in find(name).examples.values():
        resolved = find(name).options(make_cfg(name, options)).model_dump()
        assert find(name).options(make_cfg(name, resolved)).model_dump() == resolved
