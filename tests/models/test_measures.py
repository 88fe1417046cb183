"""What is measured inside of a model, against float64 derivations written by another hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from derivations import attnres, norms, streams
from flax import nnx

from models import measures
from models.depth import observed_walk, walk
from models.residuals import find
from models.taps import TappedReads
from models.transformer import make_residual
from scaling.contract.checks import moved
from scaling.contract.toy import QUICK, ToyLayers, numpy_sublayers

ATTNRES = {
    "full": ("attnres_full", {}),
    "blocks of 3": ("attnres_block", {"sublayers_per_block": 3, "block_values": "mean"}),
    "window 3": ("attnres_swa", {"window": 3}),
    "sigmoid, input query, two heads": (
        "attnres_full", {"weights": "sigmoid", "query": "input", "heads": 2},
    ),
    "no query": ("attnres_block", {"n_blocks": 2, "query": "none"}),
}  # fmt: skip
READS = ATTNRES | {
    "blocks of 4": ("attnres_block", {"n_blocks": 2}),
    "one block": ("attnres_block", {"n_blocks": 1}),
    "one in mid-layer": ("attnres_block", {"boundaries": [1, 4]}),
}


@pytest.fixture
def x_BTD():
    return np.random.default_rng(9).normal(size=(2, 8, 16)).astype(np.float32)


@pytest.fixture
def made(make_cfg):
    """made(name, options, **fields) -> a residual connection of eight sublayers, moved."""

    def make(name, options=None, **fields):
        cfg = make_cfg(name, options, **{"norm_eps": 1e-12, **fields})
        return moved(make_residual(cfg, jax.random.key(0)), spread=0.3)

    return make


def observed(residual, x_BTD) -> list[dict]:
    """Of all sublayers and the readout."""
    graphdef, state = nnx.split(residual)
    layers = ToyLayers(residual.cfg)

    def run(state, x_BTD):
        residual = nnx.merge(graphdef, state)
        return observed_walk(residual, x_BTD, layers, measures.of_sublayer)[1]

    return jax.tree.map(np.asarray, jax.jit(run, compiler_options=QUICK)(state, x_BTD))


def derived(module, residual, x_BTD) -> tuple[list, list]:
    """(what all sublayers and the readout read, what the sublayers put out), in float64."""
    cfg, outputs = residual.cfg, []
    f = numpy_sublayers(cfg)
    params = jax.tree.map(np.float64, nnx.to_pure_dict(nnx.split(residual)[1]))

    def spied(site, h):
        outputs.append(f(site, h))
        return outputs[-1]

    return getattr(module, cfg.residual.name)(params, np.float64(x_BTD), spied, cfg), outputs


def has_two_phases(residual) -> bool:
    return hasattr(residual, "is_two_phase") and residual.is_two_phase(residual.cfg)


def rms(x) -> float:
    return np.sqrt(np.mean(x**2))


@pytest.mark.parametrize("model", ATTNRES.values(), ids=ATTNRES)
def test_weights_over_depth_and_magnitudes(made, x_BTD, model, monkeypatch):
    residual, weights = made(*model, scan=False), []
    real = attnres.weigh  # of one read and head: [.., n sources]
    spy = lambda z, kind: (weights.append(real(z, kind)), weights[-1])[1]  # noqa: E731
    monkeypatch.setattr(attnres, "weigh", spy)
    inputs, outputs = derived(attnres, residual, x_BTD)
    found, options = observed(residual, x_BTD), residual.options(residual.cfg)
    sources = residual.sources(residual.cfg)
    reads = [weights[i : i + options.heads] for i in range(0, len(weights), options.heads)]

    for read, (one, h) in enumerate(zip(found, inputs, strict=True)):
        largest = np.linalg.norm(h, axis=-1).max()
        np.testing.assert_allclose(one["input_rms"], rms(h), rtol=1e-5)
        np.testing.assert_allclose(one["max_read"], largest, rtol=1e-5)
        if read < len(outputs):
            np.testing.assert_allclose(one["output_rms"], rms(outputs[read]), rtol=1e-5)
        assert len(one["alpha"]) == len(sources[read])
        if read == 0:
            assert one["alpha"].tolist() == [1] and one["alpha_entropy"] == 0
            continue
        a = np.stack(reads[read - 1]).reshape(options.heads, -1, len(sources[read]))
        share = a / a.sum(-1, keepdims=True)
        np.testing.assert_allclose(one["alpha"], a.mean((0, 1)), rtol=1e-5)
        entropy = -(share * np.log(share)).sum(-1).mean()
        np.testing.assert_allclose(one["alpha_entropy"], entropy, rtol=1e-5)
        if options.weights == "softmax":
            np.testing.assert_allclose(one["alpha"].sum(), 1, rtol=1e-6)
        if options.query == "learned":
            norm = np.linalg.norm(residual.query[read])
            np.testing.assert_allclose(one["query_norm"], norm, rtol=1e-6)


def test_sources_are_numbered_by_what_they_are(make_cfg):
    numbers = lambda *model: find(model[0]).sources(make_cfg(*model))  # noqa: E731
    assert numbers("attnres_swa", {"window": 2})[2:6] == [
        (0, 1, 2),
        (0, 2, 3),
        (0, 3, 4),
        (0, 4, 5),
    ]
    assert numbers("attnres_full")[3] == (0, 1, 2, 3)
    # The partial sum has the number of its block; where that starts, there is none.
    blocks = numbers("attnres_block", {"boundaries": [3]})
    assert blocks == [(0,), (0, 1), (0, 1), (0, 1), *[(0, 1, 2)] * 5]
    assert numbers("prenorm") == []


@pytest.mark.parametrize("implementation", ["xla", "reference"])  # the latter in two phases
@pytest.mark.parametrize("model", READS.values(), ids=READS)
def test_a_reading_mixes_to_what_is_read(made, x_BTD, model, implementation):
    residual = made(*model, implementation=implementation)
    if implementation == "reference" and not has_two_phases(residual):
        pytest.skip("has one schedule")
    layers = ToyLayers(residual.cfg)
    graphdef, state = nnx.split(residual)

    def run(state, x_BTD):
        residual = nnx.merge(graphdef, state)
        tapped = TappedReads(residual, lambda reading, read: reading.mixed())
        return walk(residual, x_BTD, layers), walk(tapped, x_BTD, layers)

    plain, mixed = jax.jit(run, compiler_options=QUICK)(state, x_BTD)
    np.testing.assert_allclose(mixed, plain, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["mhc", "hc", "ihc"])
def test_streams(made, x_BTD, name, monkeypatch):
    n, S = 3, 8
    residual, seen, mixes = made(name, {"n_streams": n}, scan=False), [], []
    if name == "hc":  # whose matrices are parameters, then
        residual = made(name, {"n_streams": n, "dynamic": False}, scan=False)
        monkeypatch.setattr(streams, "norm", None)
        alpha = np.float64(residual.static_alpha[...])
        mixes = [alpha[site, :, 1:].T for site in range(S)]
    else:
        spy = lambda x, eps: (seen.append(x), norms.norm(x, eps))[1]  # noqa: E731
        monkeypatch.setattr(streams, "norm", spy)
    if name == "mhc":
        real = streams.sinkhorn
        spy = lambda z, k: (mixes.append(real(z, k)), mixes[-1])[1]  # noqa: E731
        monkeypatch.setattr(streams, "sinkhorn", spy)
    inputs, _ = derived(streams, residual, x_BTD)
    found = observed(residual, x_BTD)
    np.testing.assert_allclose(found[-1]["input_rms"], rms(inputs[-1]), rtol=1e-4)

    gains = np.asarray(measures.gains([one["mixing"] for one in found[:-1]]))
    if name == "ihc":
        assert gains.tolist() == [1] * S
    product = np.eye(n)
    for site in reversed(range(S)) if name != "ihc" else ():
        step = mixes[site].swapaxes(-1, -2) if name == "mhc" else mixes[site]
        product = product @ step
        expected = np.abs(product).sum(-1).max(-1).mean()
        np.testing.assert_allclose(gains[site], expected, rtol=1e-4)
    assert len(seen) >= S or name == "hc"  # whose matrices are parameters
    for one, wide in zip(found[:-1], seen[:S], strict=False):
        parts = np.split(wide, n, axis=-1)
        units = [p / np.linalg.norm(p, axis=-1, keepdims=True) for p in parts]
        cosines = [(units[i] * units[j]).sum(-1).mean() for i, j in ((0, 1), (0, 2), (1, 2))]
        np.testing.assert_allclose(one["stream_similarity"], np.mean(cosines), rtol=1e-4)


@pytest.mark.parametrize(
    ("model", "options", "remat"),
    [("hc", {"dynamic": False}, "layer"), ("attnres_block", {"n_blocks": 2}, "block")],
)
def test_observed_in_scans_and_recomputed_layers_alike(made, x_BTD, model, options, remat):
    plain = observed(made(model, options, scan=False), x_BTD)
    found = observed(made(model, options, scan=True, remat=remat), x_BTD)
    assert len(found) == len(plain) == 9
    for one, other in zip(found, plain, strict=True):
        assert one.keys() == other.keys()
        for metric, value in other.items():
            # A scanned block's first read has one source more, of no weight.
            held = one[metric][: len(value)] if metric == "alpha" else one[metric]
            np.testing.assert_allclose(held, value, rtol=1e-4, atol=1e-7, err_msg=metric)


def test_norms_by_sublayer():
    rng = np.random.default_rng(0)
    shapes = {"attn": {"q": (2, 3, 4), "out": (2, 4, 3)}, "attn_norm": {"gain": (2, 3)},
              "mlp": {"up": (2, 3, 5)}, "mlp_norm": None}  # fmt: skip
    layers = jax.tree.map(
        lambda shape: rng.normal(size=shape), shapes, is_leaf=lambda x: isinstance(x, tuple)
    )
    expected = [
        np.linalg.norm(np.concatenate([leaf[i].ravel() for leaf in leaves]))
        for i in range(2)
        for leaves in (
            [layers["attn"]["q"], layers["attn"]["out"], layers["attn_norm"]["gain"]],
            [layers["mlp"]["up"]],
        )
    ]
    found = measures.sublayer_norms(jax.tree.map(jnp.float32, layers))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
