"""Attention Residuals against the equations of arXiv 2603.15031, derived in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from derivations import attnres as derived
from flax import nnx

from models.residuals import find
from models.residuals.attnres import attention, block
from models.residuals.base import frozen_weights
from scaling.contract.toy import QUICK

D = 16
BLOCKS = {
    "S=1": {"n_blocks": 8},
    "S=2": {"n_blocks": 4},
    "S=3, the last of 2": {"sublayers_per_block": 3},
    "S=8": {"n_blocks": 1},
    "means of 3": {"sublayers_per_block": 3, "block_values": "mean"},
    "means, input query": {"boundaries": [2, 7], "block_values": "mean", "query": "input"},
    "sigmoid without a norm": {"n_blocks": 4, "weights": "sigmoid", "key_norm": False},
    "window 1": {"window": 1},
    "heads without a norm": {"window": 2, "heads": 4, "key_norm": False, "query": "input"},
}
MODELS = {  # beyond the classes' own examples, which test_contract.py looks at
    label: ("attnres_swa" if "window" in options else "attnres_block", options)
    for label, options in BLOCKS.items()
}
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def sublayer(l: int, x, xp=np):  # noqa: E741
    """A stand-in for f_l with an input norm, in either array library."""
    w = np.random.default_rng(l).normal(size=(D, D)) / 4
    rms = xp.sqrt(xp.mean(xp.square(x), axis=-1, keepdims=True))
    return xp.tanh((x / rms) @ xp.asarray(w, x.dtype))


def walk(residual, x):
    """The inputs of all sublayers, and the readout: the protocol, site by site."""
    cfg, inputs = residual.cfg, []
    state = residual.init(x)
    for segment in residual.segments(cfg):
        state = residual.begin(state, segment)
        for site in segment:
            inputs.append(residual.read(state.row(site - segment.start), site))
            state = residual.write(state, site, sublayer(site, inputs[-1], jnp))
        state = residual.end(state, segment)
    return [*inputs, residual.readout(state)]


@pytest.fixture
def x_BTD():
    return np.random.default_rng(9).normal(size=(2, 8, D))


@each_model
def test_every_read_agrees_with_the_equations(make_cfg, make_model, x_BTD, model, monkeypatch):
    name, options = model
    cfg, counts = make_cfg(name, options, scan=False), []
    residual = make_model(cfg, spread=0.7).residual
    for module, function in ((block, "mix"), (attention, "depth_read")):
        real = getattr(module, function)
        spy = lambda v, *rest, real=real: (counts.append(len(v)), real(v, *rest))[1]  # noqa: E731
        monkeypatch.setattr(module, function, spy)

    found = walk(residual, jnp.asarray(x_BTD, jnp.float32))
    params = jax.tree.map(
        lambda p: np.asarray(p, np.float64), nnx.to_pure_dict(nnx.split(residual)[1])
    )
    expected = getattr(derived, name)(params, x_BTD, sublayer, cfg)

    for site, (a, b) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_allclose(a, b, rtol=5e-5, atol=5e-5, err_msg=f"read {site}")
    assert [1, *counts] == find(name).n_sources(cfg)  # the first read is the embedding itself


@each_model
def test_a_model_is_prenorm_at_init_where_its_class_says_so(make_cfg, make_model, x_BTD, model):
    """If every read is a positive multiple of the sum so far."""
    cfg = make_cfg(*model, scan=False)
    inputs = walk(make_model(cfg).residual, jnp.asarray(x_BTD, jnp.float32))
    sums = [x_BTD]
    for site, h in enumerate(inputs[:-1]):
        sums.append(sums[-1] + sublayer(site, np.asarray(h)))
    unit = lambda x: x / np.linalg.norm(x)  # noqa: E731
    is_multiple = all(
        np.abs(unit(np.asarray(h)) - unit(x)).max() < 1e-5
        for h, x in zip(inputs, sums, strict=True)
    )
    assert is_multiple == find(model[0]).reduces_to_prenorm(cfg)


def test_sliding_windows_are_no_prenorm_in_a_model_deeper_than_they_are(make_cfg):
    swa = find("attnres_swa")
    assert swa.reduces_to_prenorm(make_cfg("attnres_swa", n_layers=4))
    assert not swa.reduces_to_prenorm(make_cfg("attnres_swa", n_layers=5))
    assert not swa.reduces_to_prenorm_at_init


def logits_and_shared_gradients(model, tokens):
    graphdef, state = nnx.split(model)

    def loss(params):
        logits = nnx.merge(graphdef, params)(tokens)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], -1)
        return -picked.mean(), logits

    run = jax.jit(jax.grad(loss, has_aux=True), compiler_options=QUICK)
    grads, logits = run(nnx.to_pure_dict(state))
    grads.pop("residual", None)
    return logits, grads


def test_moved_queries_do_not_give_prenorm(make_cfg, make_model, tokens_BT):
    moved = make_model(make_cfg("attnres_full"), spread=0.5)(tokens_BT)
    prenorm = make_model(make_cfg("prenorm"))(tokens_BT)
    assert np.abs(moved - prenorm).max() > 0.1


SAME = {
    "blocks of one are full": (("attnres_full", {}), ("attnres_block", {"n_blocks": 8})),
    "means of one are full": (
        ("attnres_full", {"query": "input"}),
        ("attnres_block", {"n_blocks": 8, "block_values": "mean", "query": "input"}),
    ),
    "boundaries as of n_blocks": (
        ("attnres_block", {"n_blocks": 4}),
        ("attnres_block", {"boundaries": [2, 4, 6]}),
    ),
    "boundaries as of sublayers_per_block": (
        ("attnres_block", {"sublayers_per_block": 3, "heads": 2}),
        ("attnres_block", {"boundaries": [3, 6], "heads": 2}),
    ),
    "a window of all": (
        ("attnres_full", {"weights": "sigmoid"}),
        ("attnres_swa", {"weights": "sigmoid", "window": 8}),
    ),
    "a window of more": (("attnres_swa", {"window": 99}), ("attnres_swa", {"window": 8})),
}


@pytest.mark.parametrize("models", SAME.values(), ids=SAME)
def test_two_names_of_one_model(make_cfg, make_model, x_BTD, models):
    one, other = (
        walk(make_model(make_cfg(*model), spread=0.5).residual, jnp.asarray(x_BTD, jnp.float32))
        for model in models
    )
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("name", ["attnres_block", "attnres_full"])
def test_plain_reads_are_those_of_the_schedules(make_cfg, make_model, tokens_BT, name, monkeypatch):
    cfg = make_cfg(name, find(name).examples[""])
    run = lambda: logits_and_shared_gradients(make_model(cfg, spread=0.5), tokens_BT)  # noqa: E731
    scheduled = run()
    monkeypatch.setattr(block.AttnResBlock, "is_ablated", classmethod(lambda cls, cfg: True))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), scheduled, run()
    )


RERUN = {
    "means": ("attnres_block", {"boundaries": [4], "block_values": "mean"}),
    "a block in mid-layer": ("attnres_block", {"boundaries": [1, 4]}),
    "ablated": ("attnres_block", {"n_blocks": 2, "query": "input", "heads": 2}),
    "window": ("attnres_swa", {"window": 3, "query": "none"}),
}


@pytest.mark.parametrize("model", RERUN.values(), ids=RERUN)
def test_neither_scan_nor_remat_changes_a_number(make_cfg, make_model, tokens_BT, model):
    run = lambda **fields: logits_and_shared_gradients(  # noqa: E731
        make_model(make_cfg(*model, **fields), spread=0.5), tokens_BT
    )
    plain = run(scan=False)
    for fields in ({"remat": "layer"}, {"remat": "block"}):  # scanned, where a block can be
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
            plain,
            run(**fields),
        )


def test_what_is_scanned(make_cfg):
    def scanned(name, options):
        cfg = make_cfg(name, options)
        return [find(name).is_scanned(cfg, segment) for segment in find(name).segments(cfg)]

    assert scanned("attnres_block", {"n_blocks": 1}) == [True]
    assert scanned(*RERUN["means"]) == [True, True]
    assert scanned(*RERUN["a block in mid-layer"]) == [False, False, True]
    assert scanned(*RERUN["ablated"]) == [False, False]


def test_a_block_may_end_inside_a_layer(make_cfg, make_model, tokens_BT):
    """194M of the paper's Table 2: 24 sublayers in 8 blocks of 3."""
    cfg = make_cfg("attnres_block", {"n_blocks": 4}, n_layers=6)
    assert find("attnres_block").block_size(cfg) == 3
    assert find("attnres_block").n_sources(cfg) == [1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5]
    assert np.isfinite(make_model(cfg, spread=0.5)(tokens_BT)).all()


@pytest.mark.parametrize(
    "options", [{}, {"query": "input"}, {"query": "none"}, {"key_gain": False}]
)
def test_only_the_first_read_has_no_gradient(make_cfg, make_model, x_BTD, options):
    """It has one source; every other query and gain, the readout's too, must learn."""
    cfg = make_cfg("attnres_block", {"n_blocks": 4} | options)
    graphdef, params = nnx.split(make_model(cfg, spread=0.5).residual)
    reads = lambda p: walk(nnx.merge(graphdef, p), jnp.asarray(x_BTD, jnp.float32))  # noqa: E731
    loss = lambda p: sum(jnp.sum(jnp.sin(h)) for h in reads(p))  # noqa: E731
    grads = jax.grad(loss)(nnx.to_pure_dict(params))
    still = {
        f"{name}[{row}]"
        for name, grad in grads.items()
        for row, of_row in enumerate(grad)
        if np.abs(of_row).max() < 1e-9
    }
    assert still == set(find("attnres_block").idle(cfg))


@pytest.mark.parametrize("model", [("attnres_block", {"n_blocks": 4}), ("attnres_swa", {})])
def test_frozen_weights_have_no_gradient(make_cfg, make_model, x_BTD, model):
    """Also of reads that JAX has traced before."""
    graphdef, params = nnx.split(make_model(make_cfg(*model), spread=0.5).residual)

    def steepest():
        reads = lambda p: walk(nnx.merge(graphdef, p), jnp.asarray(x_BTD, jnp.float32))  # noqa: E731
        grads = jax.grad(lambda p: jnp.sum(jnp.sin(reads(p)[-1])))(nnx.to_pure_dict(params))
        return np.abs(grads["query"]).max()

    before = steepest()
    with frozen_weights():
        assert steepest() == 0
    assert steepest() == before > 0


REFUSED = [
    ("attnres_block", {"n_blocks": 3}, "n_blocks 3 does not divide the 8 sublayers"),
    ("attnres_block", {"sublayers_per_block": 9}, "more than the 8 sublayers"),
    (
        "attnres_block",
        {"n_blocks": 2, "sublayers_per_block": 4},
        "n_blocks or sublayers_per_block, not both",
    ),
    (
        "attnres_block",
        {"n_blocks": 2, "boundaries": [4]},
        "give n_blocks or boundaries, not both",
    ),
    ("attnres_block", {"boundaries": []}, r"boundaries \[\] must be one or more .* 1 to 7"),
    ("attnres_block", {"boundaries": [0, 4]}, r"boundaries \[0, 4\] must be .* 1 to 7"),
    ("attnres_block", {"boundaries": [4, 8]}, "from 1 to 7"),
    ("attnres_block", {"boundaries": [4, 4]}, "each larger than the one before"),
    ("attnres_block", {"block_values": "max"}, "'sum' or 'mean'"),
    ("attnres_full", {"n_blocks": 2}, "n_blocks"),
    ("attnres_full", {"heads": 3}, "heads 3 does not divide d_model 16; .* from 1 to 16"),
    ("attnres_full", {"heads": 0}, "greater than or equal to 1"),
    ("attnres_full", {"key_norm": False, "key_gain": True}, "key_gain must be false or left out"),
    ("attnres_full", {"query": "none", "weights": "sigmoid"}, "weights must be softmax"),
    ("attnres_full", {"query": "none", "heads": 2}, "heads 1"),
    ("attnres_full", {"query": "none", "key_norm": True}, "key_norm and key_gain left out"),
    ("attnres_swa", {"window": 0}, "greater than or equal to 1"),
]


@pytest.mark.parametrize(("name", "options", "sentence"), REFUSED)
def test_options_that_do_not_fit_are_refused(make_cfg, name, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        find(name).options(make_cfg(name, options))
