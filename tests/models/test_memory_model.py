"""What residual connections say of memory: Table 1's traffic, and what JAX really keeps."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from models.residuals import BUILT_IN, Residual, find, io
from models.residuals.attnres import AttnResBlock
from scaling.contract.toy import distinct

B, T, D = 2, 3, 64  # unlike heads x head_dim and d_ff, so that a shape tells what an array is
MODELS = {  # and their layers
    "prenorm": ("prenorm", {}, 3),
    "S=1": ("attnres_block", {"sublayers_per_block": 1}, 2),
    "S=3": ("attnres_block", {"sublayers_per_block": 3}, 3),  # ends in mid-layer
    "S=4": ("attnres_block", {"sublayers_per_block": 4}, 3),  # the second block is short
    "one block": ("attnres_block", {"n_blocks": 1}, 2),
    "full": ("attnres_full", {}, 5),  # in two phases, groups of 4, 4 and 2
}


def kept(cfg, make_model) -> int:
    """Arrays of the residual connection that lie between forward and backward."""
    model = make_model(cfg, spread=0.5)
    graphdef, state = nnx.split(model)
    keys = iter(jax.random.split(jax.random.key(3), 99))
    params = jax.tree.map(  # no gain of one, no row of two equal tokens
        lambda x: x + 0.3 * jax.random.normal(next(keys), x.shape), nnx.to_pure_dict(state)
    )
    tokens_BT = jnp.arange(B * T).reshape(B, T)
    _, pullback = jax.vjp(lambda p: nnx.merge(graphdef, p)(tokens_BT), params)
    norms = cfg.n_sublayers + 1 if find(cfg.residual.name).remat(cfg) == "none" else 1
    return (
        distinct(jax.tree.leaves(pullback), (B, T, D)) - 2 * norms
    )  # each keeps x / rms and its output


def assert_kept(make_cfg, make_model, model, **fields):
    """The closed form is what JAX keeps."""
    name, options, n_layers = model
    shape = {"d_model": D, "head_dim": 10, "d_ff": 40, "seq_len": T, "n_layers": n_layers}
    cfg = make_cfg(name, options, implementation="xla", **shape, **fields)
    assert find(name).saved_activations(cfg) == kept(cfg, make_model)


@pytest.mark.parametrize("remat", ["none", "layer", "block"])
@pytest.mark.parametrize("schedule", ["direct", "two-phase"])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_saved_activations_are_those_that_jax_keeps(
    make_cfg, make_model, monkeypatch, model, schedule, remat
):
    if schedule == "two-phase":  # with a kernel that runs anywhere and keeps what all of them keep
        monkeypatch.setattr(AttnResBlock, "is_two_phase", classmethod(lambda cls, cfg: True))
    assert_kept(make_cfg, make_model, model, remat=remat, scan=False)


@pytest.mark.parametrize("model", [MODELS["prenorm"], MODELS["S=4"]], ids=["prenorm", "S=4"])
@pytest.mark.parametrize("remat", ["none", "layer", "block"])
def test_a_scan_keeps_no_other_activations(make_cfg, make_model, model, remat):
    assert_kept(make_cfg, make_model, model, remat=remat, scan=True)


def test_table_1_of_the_paper():
    """Its "typical" column: L = 128 sublayers, N = 8, S = 16, m = 4, in units of d."""
    d = 1000.0
    typical = {"S": 16, "N": 8}
    assert io.total(io.standard(d)) == 3 * d
    assert io.total(io.full_attention(d, **typical)) == 24 * d
    assert io.total(io.block_attention(d, **typical)) == 5.5 * d
    # 34d in the paper, whose table also states what does not grow with d.
    assert io.total(io.hyper_connections(d, m=4)) == 34 * d + 48


@pytest.mark.parametrize("m", [1, 2, 4, 7])
def test_the_rows_of_hyper_connections_sum_to_the_papers_total(m):
    d = 640
    rows = {step.name: (step.read, step.write) for step in io.hyper_connections(d, m)}
    assert rows == {
        "compute alpha, beta, A": (m * d, m * m + 2 * m),
        "apply alpha": (m * d + m, d),
        "apply beta": (d + m, m * d),
        "apply A": (m * d + m * m, m * d),
        "merge": (2 * m * d, m * d),
    }
    assert sum(map(sum, rows.values())) == (8 * m + 2) * d + 2 * m**2 + 4 * m


@pytest.mark.parametrize(("S", "N"), [(16, 8), (3, 8), (12, 11)])
def test_the_reads_of_full_attention_are_those_of_appendix_b(S, N):
    """Keys and values of the n - 1 groups before group n, once; then t - 1 outputs for row t."""
    before = sum(2 * (n - 1) * S for n in range(1, N + 1)) / (S * N)
    inside = sum(2 * (t - 1) for t in range(1, S + 1)) / S
    assert [step.read for step in io.full_attention(1, S, N)] == pytest.approx([before, inside])


def test_variants_follow_the_table(make_cfg):
    deep = {"n_layers": 64, "d_model": 32}  # 128 sublayers
    units = lambda cfg: find(cfg.residual.name).io_per_token(cfg) / cfg.d_model  # noqa: E731
    assert units(make_cfg("prenorm", **deep)) == 3
    assert units(make_cfg("attnres_block", {"n_blocks": 8}, **deep)) == 5.5
    assert units(make_cfg("attnres_block", {"sublayers_per_block": 16}, **deep)) == 5.5
    # The model's own groups: 12 sublayers, so 11 of them; 2 sqrt(128) = 22.6 is the least.
    assert units(make_cfg("attnres_full", **deep)) == pytest.approx(128 / 11 + 11)
    # 34 sublayers in blocks of 4 are 9 blocks of 3.8 on average.
    ragged = make_cfg("attnres_block", {"sublayers_per_block": 4}, n_layers=17)
    assert units(ragged) == pytest.approx(9 / (34 / 9) + 5)


@pytest.mark.parametrize("name", BUILT_IN)
def test_traffic_does_not_depend_on_the_kernels(make_cfg, name):
    direct, two_phase = (make_cfg(name, implementation=i) for i in ("xla", "reference"))
    assert find(name).io_per_token(direct) == find(name).io_per_token(two_phase)


def test_a_variant_of_ones_own_need_not_declare_them(make_cfg):
    cfg = make_cfg()
    assert Residual.io_per_token(cfg) is None and Residual.saved_activations(cfg) is None
