"""The model whatever its residual connection."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.params import groups
from models.residuals import BUILT_IN, find
from scaling.contract.toy import QUICK
from scaling.flops import count_params
from scaling.step import init_params

VARIANTS = ["prenorm", "attnres_full", "attnres_block"]  # test_contract.py looks at all
OPTIONS = {"attnres_block": {"n_blocks": 2}}


def options(name):
    return OPTIONS.get(name, {})


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(
    "fields",
    [{}, {"n_kv_heads": 1}, {"tie_embeddings": True}, {"qk_norm": False}],
    ids=["plain", "gqa", "tied", "no qk-norm"],
)
def test_parameters_are_as_many_as_the_closed_form_says(make_cfg, make_model, name, fields):
    cfg = make_cfg(name, options(name), **fields)
    params = nnx.to_pure_dict(nnx.split(make_model(cfg))[1])
    total, body = count_params(cfg)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == total
    vocabulary = [params.pop("embed"), params.pop("head", np.zeros(0))]
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == body
    assert total - body == sum(leaf.size for leaf in vocabulary)


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name != "prenorm"])
def test_variants_of_a_seed_share_their_weights_bitwise(make_cfg, name):
    cfg = make_cfg(name, options(name))
    base = init_params(make_cfg("prenorm"), seed=3)
    variant = init_params(cfg, seed=3)
    variant.pop("residual", None)
    if not find(name).input_norm:
        del base["layers"]["attn_norm"], base["layers"]["mlp_norm"]
    if not find(name).final_norm:
        del base["final_norm"]
    for matrix, factor in find(name).init_scales(cfg).items():
        sublayer = base["layers"]["attn" if matrix in ("q", "k", "v", "out") else "mlp"]
        sublayer[matrix] = factor * sublayer[matrix]
    exact = np.testing.assert_array_equal
    close = partial(np.testing.assert_allclose, rtol=1e-6)  # one product more
    jax.tree.map(close if find(name).init_scales(cfg) else exact, base, variant)
    other = init_params(make_cfg("prenorm"), seed=4)
    assert not np.array_equal(other["layers"]["mlp"]["up"], base["layers"]["mlp"]["up"])


@pytest.mark.parametrize("name", VARIANTS)
def test_remat_changes_nothing(make_cfg, make_model, tokens_BT, name):
    def grads(remat):
        cfg = make_cfg(name, options(name), remat=remat)
        graphdef, state = nnx.split(make_model(cfg, spread=0.5))
        loss = lambda p: jnp.square(nnx.merge(graphdef, p)(tokens_BT)).mean()  # noqa: E731
        traced = jax.jit(jax.grad(loss)).trace(nnx.to_pure_dict(state))
        assert any(word in str(traced.jaxpr) for word in ("remat", "checkpoint")) == (
            remat != "none"
        )
        return traced.lower().compile(compiler_options=QUICK)(nnx.to_pure_dict(state))

    whole = grads("none")
    for remat in ("layer", "block"):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
            whole,
            grads(remat),
        )


def test_no_float64_in_a_lowered_step(make_cfg, make_model, tokens_BT):
    model = make_model(make_cfg("attnres_block", {"n_blocks": 2}))
    text = jax.jit(lambda m, t: m(t)).lower(model, tokens_BT).as_text()
    assert "f32" in text and "f64" not in text


def test_groups_say_what_decays(make_cfg, make_model):
    found = groups(make_model(make_cfg("attnres_full")))
    assert found["residual"] == {"query": "vector", "gain": "vector"}
    assert found["embed"] == found["head"] == "embedding"
    assert found["layers"]["attn"]["q"] == "matrix"
    assert found["layers"]["attn_norm"]["gain"] == "vector"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"d_model": 15}, "d_model 15 is not divisible by n_heads 2"),
        ({"n_heads": 16}, "must be even"),
        ({"n_kv_heads": 3}, "n_heads 2 is not divisible by n_kv_heads 3"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(make_cfg, fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_cfg(**fields)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("attnres_ful", "did you mean 'attnres_full'"),
        ("no.such.module:Thing", "cannot be imported"),
        ("models.layers:Layer", "not a subclass"),
    ],
)
def test_unknown_residuals_are_refused(name, sentence):
    with pytest.raises(ValueError, match=sentence):
        find(name)
