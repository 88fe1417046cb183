"""Both schedules of depth attention in a model: the same numbers, and few activations saved."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax._src.ad_checkpoint import saved_residuals  # public only as a function that prints

from models.residuals import find
from scaling.contract.toy import QUICK

MODELS = {
    "full": ("attnres_full", {}),
    "S=1": ("attnres_block", {"n_blocks": 8}),
    "S=2": ("attnres_block", {"n_blocks": 4}),
    "S=4": ("attnres_block", {"n_blocks": 2}),
    "S=8": ("attnres_block", {"n_blocks": 1}),
    "means, one in mid-layer": ("attnres_block", {"boundaries": [1, 4], "block_values": "mean"}),
}


def logits_and_gradients(model, tokens_BT):
    graphdef, state = nnx.split(model)

    def loss(params):
        logits_BTV = nnx.merge(graphdef, params)(tokens_BT)
        return jnp.sum(jnp.sin(logits_BTV)), logits_BTV

    run = jax.jit(jax.grad(loss, has_aux=True), compiler_options=QUICK)
    grads, logits_BTV = run(nnx.to_pure_dict(state))
    return logits_BTV, grads


@pytest.mark.parametrize("scan", [True, False], ids=["scan", "unrolled"])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_two_phases_equal_direct_reads(make_cfg, make_model, tokens_BT, model, scan):
    direct, two_phase = (
        make_model(make_cfg(*model, implementation=name, scan=scan), spread=0.5)
        for name in ("xla", "reference")
    )
    assert [m.residual.is_two_phase(m.cfg) for m in (direct, two_phase)] == [False, True]

    def close(a, b):  # the embedding's rms of 0.02 multiplies fp32 rounding by 50
        assert np.linalg.norm(a - b) <= 50 * 1e-6 * np.linalg.norm(b)

    jax.tree.map(
        close, logits_and_gradients(direct, tokens_BT), logits_and_gradients(two_phase, tokens_BT)
    )


def test_groups_of_full_attnres_cover_its_depth_in_about_the_root_of_it(make_cfg):
    cfg = make_cfg("attnres_full", implementation="pallas_tpu", n_layers=17)
    segments = find("attnres_full").segments(cfg)
    assert [site for segment in segments for site in segment] == list(range(34))
    assert {len(segment) for segment in segments} == {6, 4}


def saved_units(cfg, make_model, tokens_BT) -> float:
    """Activations kept for backward, in units of B * T * D."""
    graphdef, state = nnx.split(make_model(cfg))
    loss = lambda p: jnp.mean(jnp.square(nnx.merge(graphdef, p)(tokens_BT)))  # noqa: E731
    saved = saved_residuals(loss, nnx.to_pure_dict(state))
    batch = tokens_BT.shape
    sizes = [
        a.size
        for a, origin in saved
        if not origin.startswith("from the argument")  # parameters
        and any(a.shape[i : i + 2] == batch for i in range(2))
    ]
    return sum(sizes) / (tokens_BT.size * cfg.d_model)


@pytest.mark.parametrize("implementation", ["xla", "pallas_tpu"])
def test_blocks_save_their_sums_alone(make_cfg, make_model, implementation):
    """PreNorm keeps a layer's input, Block a block's; more than that is scalars a token."""
    tokens_BT = jnp.zeros((3, 7), jnp.int32)

    def units(name, n_layers, **options):
        cfg = make_cfg(
            name,
            options,
            n_layers=n_layers,
            d_model=256,
            remat="block",
            implementation=implementation,
        )
        return saved_units(cfg, make_model, tokens_BT)

    prenorm, block = units("prenorm", 16), units("attnres_block", 16, n_blocks=4)
    assert prenorm == units("prenorm", 32) - 16
    assert block <= prenorm + 4 + 2
    # Deeper blocks keep no more, but for the logits against the additional reads.
    assert units("attnres_block", 32, n_blocks=4) - block < 0.7
    assert units("attnres_block", 16, n_blocks=8) - block < 4 + 0.7
