"""Analytic FLOPs against what JAX and the compiler count, forward and in the training step.

Matrix products are counted exactly, in the jaxpr; whole programs by the compiler's analysis of an
unrolled model, where the widths are such that norms, RoPE and softmax stay below 5%.
"""

import functools
import json

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from models import ModelConfig, ResidualSpec, Transformer
from models.residuals import BUILT_IN, find
from scaling.flops import (
    CONVENTIONS,
    account,
    attention_flops_per_token,
    count_params,
    forward_flops_per_token,
    mlp_flops_per_token,
    train_flops,
)

B = 2
OPTIONS = {"attnres_block": {"sublayers_per_block": 4}, "denseformer": {"dilation": 2}}
TABLE2_VARIANTS = ("prenorm", "attnres_block", "attnres_full")  # test_contract.py has them all
SMALL = {
    "tiny": {"d_model": 16, "n_layers": 4, "n_heads": 2, "d_ff": 24, "seq_len": 8},
    "grouped": {"d_model": 16, "n_layers": 3, "n_heads": 4, "n_kv_heads": 2, "d_ff": 40},
    "wide heads": {"d_model": 24, "n_layers": 3, "n_heads": 2, "head_dim": 20, "d_ff": 32},
    "cpu d32": {"d_model": 32, "n_layers": 8, "n_heads": 2, "d_ff": 88, "seq_len": 256},
    "cpu d120": {"d_model": 120, "n_layers": 8, "n_heads": 4, "d_ff": 320, "seq_len": 256},
}
TABLE2 = {  # widths of configs/table2-dense.yaml, with few layers, positions and tokens
    "194M": {"d_model": 896, "n_heads": 12, "d_ff": 3968},
    "241M": {"d_model": 960, "n_heads": 13, "d_ff": 4224},
    "296M": {"d_model": 1024, "n_heads": 14, "d_ff": 4480},
    "436M": {"d_model": 1168, "n_heads": 16, "d_ff": 5056},
    "528M": {"d_model": 1264, "n_heads": 17, "d_ff": 5312},
}


def make(name: str, shape: dict) -> ModelConfig:
    fields = {"vocab_size": 256, "seq_len": 32, "n_kv_heads": shape["n_heads"]} | shape
    residual = ResidualSpec(name=name, options=OPTIONS.get(name, {}))
    return ModelConfig(**fields, scan=False, implementation="xla", residual=residual)


def table2(name: str, size: str) -> ModelConfig:
    return make(name, TABLE2[size] | {"head_dim": 128, "n_layers": 3, "vocab_size": 2048})


def program(cfg: ModelConfig, train: bool):
    """(function, arguments as shapes): logits, or the gradient of the training loss."""
    abstract = jax.eval_shape(lambda k: Transformer(cfg, k), jax.random.key(0))
    graphdef, state = nnx.split(abstract)
    tokens = jax.ShapeDtypeStruct((B, cfg.seq_len + train), jnp.int32)

    def forward(params, tokens):
        return nnx.merge(graphdef, params)(tokens)

    def loss(params, tokens):
        weights = jnp.ones((B, cfg.seq_len))
        return nnx.merge(graphdef, params).nll_sum(tokens, weights)

    return (jax.grad(loss) if train else forward), (nnx.to_pure_dict(state), tokens)


def products(jaxpr) -> int:
    """FLOPs of all matrix products of a jaxpr, those inside of calls and loops included."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            inner = functools.reduce(lambda n, axis: n * left[axis], contracted, 1)
            total += 2 * inner * equation.outvars[0].aval.size
        branches = [products(inner) for inner in _inner(equation)]
        if equation.primitive.name == "cond":  # of which one runs
            total += max(branches)
        else:
            total += equation.params.get("length", 1) * sum(branches)
    return total


def _inner(equation) -> list:
    found = jax.tree.leaves(
        list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")
    )
    return [getattr(x, "jaxpr", x) for x in found if hasattr(x, "eqns") or hasattr(x, "jaxpr")]


def counted(cfg: ModelConfig, train: bool) -> float:
    """FLOPs per token of the matrix products."""
    function, arguments = program(cfg, train)
    return products(jax.make_jaxpr(function)(*arguments).jaxpr) / (B * cfg.seq_len)


def analysed(cfg: ModelConfig, train: bool, compiled: bool = False) -> float:
    """FLOPs per token by XLA's cost analysis, of the program as lowered or as compiled."""
    function, arguments = program(cfg, train)
    lowered = jax.jit(function).lower(*arguments)
    cost = (lowered.compile() if compiled else lowered).cost_analysis()
    return cost["flops"] / (B * cfg.seq_len)


def dense(cfg: ModelConfig) -> float:
    """All but the residual connection: masked scores too, since plain XLA computes them."""
    parts = forward_flops_per_token(cfg)
    return sum(parts.values()) - parts["residual"]


@pytest.mark.parametrize("train", [False, True], ids=["forward", "step"])
@pytest.mark.parametrize("shape", SMALL.values(), ids=SMALL)
def test_matrix_products_to_the_last_one(shape, train):
    """Two of backward for each of forward."""
    cfg = make("prenorm", shape)
    assert counted(cfg, train) == (3 if train else 1) * dense(cfg)


def n_logits(name: str, L: int) -> int:
    """Pairs of a source and a read, for blocks of four sublayers (Eq. 6) or one (section 3.1)."""
    if name == "attnres_full":
        return (L + 1) * (L + 2) // 2
    return sum(1 + read // 4 + (read % 4 > 0) for read in range(L + 1))


@pytest.mark.parametrize("train", [False, True], ids=["forward", "step"])
@pytest.mark.parametrize("shape", SMALL.values(), ids=SMALL)
@pytest.mark.parametrize("name", ["attnres_block", "attnres_full"])
def test_attnres_adds_one_product_a_logit(name, shape, train):
    cfg = make(name, shape)
    added = counted(cfg, train) - (3 if train else 1) * dense(cfg)
    assert added == (3 if train else 1) * 2 * cfg.d_model * n_logits(name, cfg.n_sublayers)


@pytest.mark.parametrize("train", [False, True], ids=["forward", "step"])
@pytest.mark.parametrize("size", TABLE2)
@pytest.mark.parametrize("name", TABLE2_VARIANTS)
def test_the_papers_variants_at_the_widths_of_table_2(name, size, train):
    cfg = table2(name, size)
    analytic = (3 if train else 1) * sum(forward_flops_per_token(cfg).values())
    assert analytic == pytest.approx(analysed(cfg, train), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT_IN)
def test_every_variant_against_an_unrolled_compile(name):
    cfg = make(name, {"d_model": 256, "n_layers": 3, "n_heads": 4, "d_ff": 704})
    analytic = sum(forward_flops_per_token(cfg).values())
    assert analytic == pytest.approx(analysed(cfg, False, compiled=True), rel=0.05)


def test_a_training_step_against_an_unrolled_compile():
    cfg = make("attnres_block", {"d_model": 256, "n_layers": 3, "n_heads": 4, "d_ff": 704})
    analytic = 3 * sum(forward_flops_per_token(cfg).values())
    assert analytic == pytest.approx(analysed(cfg, True, compiled=True), rel=0.05)


@pytest.mark.parametrize("name", TABLE2_VARIANTS[1:])
def test_a_variants_own_flops_are_what_it_adds_to_a_compile(name):
    """Against PreNorm, whose additions the compiler counts and the closed form does not."""
    shape = {"d_model": 512, "d_ff": 64, "n_heads": 8, "n_layers": 5}  # the last block is short
    cfg = make(name, shape)
    added = analysed(cfg, False, compiled=True)
    added -= analysed(make("prenorm", shape), False, compiled=True)
    S = find(name).block_size(cfg)
    saved_additions = cfg.d_model * sum(site % S == 0 for site in range(cfg.n_sublayers))
    assert find(name).flops_per_token(cfg) == pytest.approx(added + saved_additions, rel=0.02)


def test_conventions_written_out():
    cfg = make("prenorm", SMALL["tiny"] | {"vocab_size": 17})
    tokens, D, L = 100, 16, 4
    projections, mlp, head = 8 * D * D * L, 6 * D * 24 * L, 2 * D * 17
    causal, full = 4 * D * 4.5 * L, 4 * D * 8 * L
    assert train_flops(cfg, tokens) == 3 * (projections + mlp + causal) * tokens
    assert train_flops(cfg, tokens, "with_head") == 3 * (projections + mlp + causal + head) * tokens
    assert train_flops(cfg, tokens, "attention_full") == 3 * (projections + mlp + full) * tokens
    assert train_flops(cfg, tokens, "6nd") == 6 * count_params(cfg)[1] * tokens


def test_sublayers_with_heads_of_their_own_width_written_out():
    """D 24, two heads of 20, T 32, F 32."""
    cfg = make("prenorm", SMALL["wide heads"])
    assert attention_flops_per_token(cfg) == {
        "attention_projections": 2 * 4 * 24 * 40,
        "attention_scores": 2 * 2 * 20 * 2 * 33 / 2,
        "attention_masked": 2 * 2 * 20 * 2 * 31 / 2,
    }
    assert mlp_flops_per_token(cfg) == 2 * 3 * 24 * 32
    whole = forward_flops_per_token(cfg)
    assert whole["attention_projections"] == 3 * 7680 and whole["mlp"] == 3 * 4608


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_account_is_whole_and_adds_up(name):
    cfg = make(name, SMALL["tiny"])
    row = account(cfg, 1000)
    assert (row["params"], row["params_non_embedding"]) == count_params(cfg)
    assert list(row["train_flops"]) == list(row["pflops_days"]) == list(CONVENTIONS)
    parts = row["forward_flops_per_token"]
    assert row["train_flops"]["with_head"] == 3000 * (
        sum(parts.values()) - parts["attention_masked"]
    )
    assert row["io_per_token_per_sublayer"] > 0 and row["saved_activations"] > 0


SILENT = """
from models.residuals import Residual
from models.residuals.prenorm import PreNorm

class Silent(PreNorm):
    io_per_token, saved_activations = Residual.io_per_token, Residual.saved_activations
"""


def test_the_command(raw_study, write_study, command, tmp_path):
    (tmp_path / "mine.py").write_text(SILENT)
    raw_study["variants"]["silent"] = {"residual": "mine:Silent"}
    raw_study["sizes"]["d12"]["head_dim"] = 10
    raw_study["data"]["source"] = "tfds:no_such_set"  # never read
    study = write_study(raw_study)
    text = command("flops", study).stdout
    assert max(map(len, text.splitlines())) <= 100 and "\x1b" not in text
    for heading in ("projections", "scores", "MLP", "residual", "head", *CONVENTIONS):
        assert heading in text
    memory = [line for line in text.splitlines() if "d8/silent" in line][2]
    assert memory.split()[-2:] == ["n/d", "n/d"]
    only = ("--size", "d12", "--set", "data.tokenizer=bpe:163840")
    rows = json.loads(command("flops", study, "--json", *only).stdout)["rows"]
    assert rows[0]["forward_flops_per_token"]["head"] == 2 * 12 * 163_840
    assert [row["variant"] for row in rows] == list(raw_study["variants"])
    assert rows[0]["forward_flops_per_token"]["attention_projections"] == 2 * 2 * 4 * 12 * 10
    assert rows[0]["params_residual"] == 0 and rows[2]["params_residual"] == 2 * 5 * 12
    refused = command("flops", study, "--variant", "attnres", check=False)
    assert refused.returncode == 2 and "the study has no variant 'attnres'" in refused.stderr
