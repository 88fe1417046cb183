"""Attention Residuals against the equations of arXiv 2603.15031, derived in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.residuals import attnres, find

D = 16
BLOCKS = {"full": None, "S=2": 4, "S=4": 2, "S=8": 1, "S=1": 8}


def name_and_options(n_blocks):
    return ("attnres_full", {}) if n_blocks is None else ("attnres_block", {"n_blocks": n_blocks})


def sublayer(l: int, x, xp):  # noqa: E741
    """A stand-in for f_l with an input norm, in either array library."""
    w = np.random.default_rng(l).normal(size=(D, D)) / 4
    rms = xp.sqrt(xp.mean(xp.square(x), axis=-1, keepdims=True))
    return xp.tanh((x / rms) @ xp.asarray(w, x.dtype))


def by_the_equations(x, query, gain, block_size, n_sublayers, eps):
    """Inputs of all sublayers and the readout: section 3.1 (block_size 1) and Eq. 5 and 6."""

    def read(sources, w, g):
        keys = [v / np.sqrt(np.mean(v**2, -1, keepdims=True) + eps) * g for v in sources]
        logits = np.stack([k @ w for k in keys])
        p = np.exp(logits - logits.max(0))
        p /= p.sum(0)
        return sum(p[i][..., None] * v for i, v in enumerate(sources))

    outputs, inputs, counts = [], [], []
    for site in range(n_sublayers + 1):
        n, i = divmod(site, block_size)  # i outputs of block n + 1 are there
        sums = [sum(outputs[b * block_size : (b + 1) * block_size]) for b in range(n)]
        partial = [sum(outputs[n * block_size : site])] if i else []
        sources = [x, *sums, *partial]
        counts.append(len(sources))
        inputs.append(read(sources, query[site], gain[site]) if site else x)
        if site < n_sublayers:
            outputs.append(sublayer(site, inputs[-1], np))
    return inputs, counts


def walk(residual, x):
    """The protocol, site by site."""
    cfg, inputs = residual.cfg, []
    state = residual.init(x)
    for segment in residual.segments(cfg):
        state = residual.begin(state, segment)
        for site in segment:
            inputs.append(residual.read(state.row(site - segment.start), site))
            state = residual.write(state, site, sublayer(site, inputs[-1], jnp))
        state = residual.end(state, segment)
    return [*inputs, residual.readout(state)]


@pytest.mark.parametrize("n_blocks", BLOCKS.values(), ids=BLOCKS)
def test_every_read_agrees_with_the_equations(make_cfg, make_model, n_blocks, monkeypatch):
    cfg = make_cfg(*name_and_options(n_blocks), scan=False)
    residual = make_model(cfg, spread=0.7).residual
    x = np.random.default_rng(9).normal(size=(2, 8, D))
    counts = []
    real = attnres.mix
    monkeypatch.setattr(attnres, "mix", lambda v, z: (counts.append(len(v)), real(v, z))[1])

    found = walk(residual, jnp.asarray(x, jnp.float32))
    query, gain = (np.asarray(p[...], np.float64) for p in (residual.query, residual.gain))
    S = find(cfg.residual.name).block_size(cfg)
    expected, sources = by_the_equations(x, query, gain, S, 8, cfg.norm_eps)

    for site, (a, b) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5, err_msg=f"read {site}")
    assert counts == sources[1:]  # the first read is the embedding itself
    assert find(cfg.residual.name).n_sources(cfg) == sources


def logits_and_shared_gradients(model, tokens):
    graphdef, state = nnx.split(model)

    def loss(params):
        logits = nnx.merge(graphdef, params)(tokens)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], -1)
        return -picked.mean(), logits

    grads, logits = jax.grad(loss, has_aux=True)(nnx.to_pure_dict(state))
    grads.pop("residual", None)
    return logits, grads


@pytest.mark.parametrize("n_blocks", [None, 4, 2], ids=["full", "S=2", "S=4 scanned"])
def test_zero_queries_give_prenorm(make_cfg, make_model, tokens_BT, n_blocks):
    eps = 1e-12  # a mean of n sources meets the norm's epsilon n times larger than their sum does
    cfg = make_cfg(*name_and_options(n_blocks), norm_eps=eps)
    logits, grads = logits_and_shared_gradients(make_model(cfg), tokens_BT)
    expected, expected_grads = logits_and_shared_gradients(
        make_model(make_cfg("prenorm", norm_eps=eps)), tokens_BT
    )
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5 * np.abs(b).max() + 1e-9),
        grads,
        expected_grads,
    )


def test_moved_queries_do_not_give_prenorm(make_cfg, make_model, tokens_BT):
    moved = make_model(make_cfg("attnres_full"), spread=0.5)(tokens_BT)
    prenorm = make_model(make_cfg("prenorm"))(tokens_BT)
    assert np.abs(moved - prenorm).max() > 0.1


def test_block_of_one_sublayer_is_full(make_cfg, make_model, tokens_BT):
    full = make_model(make_cfg("attnres_full"), spread=0.5)(tokens_BT)
    block = make_model(make_cfg("attnres_block", {"n_blocks": 8}), spread=0.5)(tokens_BT)
    np.testing.assert_array_equal(full, block)


@pytest.mark.parametrize("n_blocks", [1, 2])
def test_scan_and_unrolled_give_the_same(make_cfg, make_model, tokens_BT, n_blocks):
    options = {"n_blocks": n_blocks}
    cfg = make_cfg("attnres_block", options)
    block = find("attnres_block")
    assert all(block.is_scanned(cfg, segment) for segment in block.segments(cfg))
    scanned = logits_and_shared_gradients(make_model(cfg, spread=0.5), tokens_BT)
    unrolled = logits_and_shared_gradients(
        make_model(make_cfg("attnres_block", options, scan=False), spread=0.5), tokens_BT
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), scanned, unrolled
    )


def test_a_block_may_end_inside_a_layer(make_cfg, make_model, tokens_BT):
    """194M of the paper's Table 2: 24 sublayers in 8 blocks of 3."""
    cfg = make_cfg("attnres_block", {"n_blocks": 4}, n_layers=6)
    assert find("attnres_block").block_size(cfg) == 3
    assert find("attnres_block").n_sources(cfg) == [1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5]
    assert np.isfinite(make_model(cfg, spread=0.5)(tokens_BT)).all()


def test_only_the_first_read_has_no_gradient(make_cfg, make_model, tokens_BT):
    """It has one source; every other query and gain, the readout's too, must learn."""
    model = make_model(make_cfg("attnres_block", {"n_blocks": 4}), spread=0.5)
    graphdef, state = nnx.split(model)
    loss = lambda p: jnp.square(nnx.merge(graphdef, p)(tokens_BT)).mean()  # noqa: E731
    grads = jax.grad(loss)(nnx.to_pure_dict(state))["residual"]
    for name in ("query", "gain"):
        moved = np.abs(grads[name]).max(axis=1)
        assert moved[0] == 0 and (moved[1:] > 1e-9).all(), name


def test_blocks_that_do_not_divide_are_refused(make_cfg):
    with pytest.raises(ValueError, match=r"n_blocks 3 does not divide the 8 sublayers"):
        find("attnres_block").options(make_cfg("attnres_block", {"n_blocks": 3}))
