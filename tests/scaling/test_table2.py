"""The paper's five sizes as dense models: what they are, and what they cost by calculation."""

import json
from pathlib import Path

import pytest

from models.residuals import find
from scaling.cells import Cell, expand
from scaling.data import check
from scaling.data.spec import parse_tokenizer
from scaling.device import chip
from scaling.flops import CONVENTIONS, account
from scaling.study import load_study

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "configs" / "table2-dense.yaml"
GOLDEN = Path(__file__).with_name("table2_golden.json")
UPDATE = "python tests/scaling/test_table2.py"  # writes GOLDEN

# arXiv 2603.15031, Table 2: activated parameters, tokens, blocks, heads, d_model, learning rate,
# batch; and sublayers in each of "about 8" blocks, where a block is two whole layers.
PAPER = {
    "194M": (194e6, 38.7e9, 12, 12, 896, 2.99e-3, 192, [4] * 6),
    "241M": (241e6, 45.4e9, 13, 13, 960, 2.80e-3, 256, [4] * 6 + [2]),
    "296M": (296e6, 62.1e9, 14, 14, 1024, 2.50e-3, 320, [4] * 7),
    "436M": (436e6, 87.9e9, 16, 16, 1168, 2.20e-3, 384, [4] * 8),
    "528M": (528e6, 119.0e9, 17, 17, 1264, 2.02e-3, 432, [4] * 8 + [2]),
}


def cells() -> list[Cell]:
    """Every size and variant."""
    study = load_study(STUDY)
    check(study.data.source, study.data.tokenizer)
    return expand(study, parse_tokenizer(study.data.tokenizer).vocab_size)


def costs() -> dict[str, dict]:
    """By size/variant: all that does not depend on the machine it is asked on."""
    rows = {f"{cell.size}/{cell.variant}": account(cell.model, cell.tokens) for cell in cells()}
    for row in rows.values():
        del row["saved_activations"]  # depends on which kernels a platform has
    return rows


def write_golden() -> None:
    """Accepts what the code says now."""
    GOLDEN.write_text(json.dumps(costs(), indent=1) + "\n", encoding="utf-8")


def test_costs_are_those_on_record():
    """Integers and sums of integers: equal to the last digit."""
    golden, now = json.loads(GOLDEN.read_text(encoding="utf-8")), costs()
    differ = [
        f"{cell}.{key}: {golden.get(cell, {}).get(key)} on record, {row[key]} now"
        for cell, row in now.items()
        for key in row
        if golden.get(cell, {}).get(key) != row[key]
    ]
    differ += [f"{cell}: on record, and not in the study" for cell in golden.keys() - now.keys()]
    assert not differ, (
        "\n".join(differ) + f"\nIf that is intended, run {UPDATE} and commit {GOLDEN.name}."
    )


@pytest.mark.parametrize("size", PAPER)
def test_sizes_are_the_papers(size):
    of_size = {cell.variant: cell for cell in cells() if cell.size == size}
    assert list(of_size) == ["prenorm", "attnres_block", "attnres_full"]
    params, tokens, n_layers, n_heads, d_model, rate, batch, blocks = PAPER[size]
    for cell in of_size.values():
        model = cell.model
        assert (model.n_layers, model.n_heads, model.d_model) == (n_layers, n_heads, d_model)
        assert (model.seq_len, model.head_dim) == (8192, 128)
        assert (cell.train.learning_rate, cell.train.batch_size) == (rate, batch)
        assert cell.tokens == pytest.approx(tokens, rel=0.5 / cell.steps)  # whole steps
    body = account(of_size["prenorm"].model, tokens)["params_non_embedding"]
    assert body == pytest.approx(params, rel=0.005)  # 0.03 is required
    block = of_size["attnres_block"].model
    assert [len(s) for s in find("attnres_block").segments(block)] == blocks


def test_d_ff_is_the_nearest_multiple_of_64():
    for cell in cells():
        if cell.variant == "prenorm":
            params = PAPER[cell.size][0]
            miss = {
                d_ff: abs(account(model, 1)["params_non_embedding"] - params)
                for d_ff in range(cell.model.d_ff - 64, cell.model.d_ff + 65, 64)
                for model in [cell.model.model_copy(update={"d_ff": d_ff})]
            }
            assert min(miss, key=miss.get) == cell.model.d_ff


def test_the_436m_model_written_out():
    """16 layers, 16 heads of 128, d_model 1168, d_ff 5056, 8,192 positions, 163,840 tokens.

    A layer: q, k, v and output of 1168 x 2048; gate, up and down of 1168 x 5056; two norms of 1168,
    and two of 128 for queries and keys. The paper's FLOPs are not defined, so only ours are here.
    """
    row = costs()["436M/prenorm"]
    attention = 4 * 1168 * 2048
    mlp = 3 * 1168 * 5056
    body = 16 * (attention + mlp + 2 * 1168 + 2 * 128) + 1168
    assert (attention, mlp, body) == (9_568_256, 17_716_224, 436_594_320)
    assert row["params_non_embedding"] == body
    assert row["params"] == body + 2 * 163_840 * 1168 == 819_324_560

    # 87.9e9 / (384 x 8192) = 27,942.66 steps
    tokens = 27_943 * 384 * 8192
    assert row["tokens"] == tokens == 87_901_077_504

    # Position t sees t + 1 keys: 8192 x 8193 / 2 pairs a sequence, 4,096.5 a token. A pair costs a
    # head a product of 128 with the key and one with the value: 4 x 128 FLOPs.
    scores = 16 * 16 * 4 * 128 * 4096.5
    masked = 16 * 16 * 4 * 128 * 4095.5
    weights = 16 * 2 * (attention + mlp)
    head = 2 * 1168 * 163_840
    forward = {"train_flops": weights + scores, "with_head": weights + scores + head}
    forward["attention_full"] = weights + scores + masked
    expected = {name: 3 * flops * tokens for name, flops in forward.items()}
    assert row["train_flops"] == expected | {"6nd": 6.0 * body * tokens}
    assert row["pflops_days"]["6nd"] == pytest.approx(6 * 436.594e6 * 87.901e9 / 8.64e19, rel=1e-5)
    assert list(row["train_flops"]) == list(CONVENTIONS)


def test_block_and_full_attnres_of_436m_written_out():
    """32 sublayers in 8 blocks of 4. Products of width d per token, by Eq. 6.

    Read l sees 1 + floor(l / 4) finished sources, and the partial sum unless l is a multiple of 4:
    a logit a source costs 2d, its statistic 2d once, and a weighted sum of n sources (2n - 1)d. The
    embedding is scored against read 0 too, which needs no weights.
    """
    d, rows = 1168, costs()
    n_sources = [1 + l // 4 + (l % 4 > 0) for l in range(33)]  # noqa: E741
    assert sum(n_sources) == 1 + (2 + 2 + 2) + 2 + (3 + 3 + 3) + sum(n_sources[8:])
    statistics = 9 + 24  # the embedding and 8 blocks, and the partial sums of 3 reads a block
    mixing = sum(2 * n - 1 for n in n_sources[1:])
    block = d * (2 * sum(n_sources) + 2 * statistics + mixing)
    assert rows["436M/attnres_block"]["forward_flops_per_token"]["residual"] == block
    # Full: read l sees l + 1 sources; 33 are scored, 33 x 34 / 2 logits.
    full = d * (2 * 561 + 2 * 33 + sum(2 * (l + 1) - 1 for l in range(1, 33)))  # noqa: E741
    assert rows["436M/attnres_full"]["forward_flops_per_token"]["residual"] == full
    for variant in ("attnres_block", "attnres_full"):  # a query and a key gain a read
        extra = rows[f"436M/{variant}"]["params"] - rows["436M/prenorm"]["params"]
        assert extra == 2 * 33 * d == rows[f"436M/{variant}"]["params_residual"]
    traffic = {name: row["io_per_token_per_sublayer"] / d for name, row in rows.items()}
    # Block: 8 blocks of 4. Full: six groups of 32 / 6 sublayers on average.
    assert traffic["436M/prenorm"] == 3 and traffic["436M/attnres_block"] == 8 / 4 + 5
    assert traffic["436M/attnres_full"] == pytest.approx(32 / 6 + 6)


def test_the_header_says_what_the_command_does():
    """Its cost lines are the calculation's, rounded."""
    text, rows = STUDY.read_text(encoding="utf-8"), costs()
    total = sum(row["train_flops"]["with_head"] for row in rows.values())
    assert f"{total:.2e} FLOPs".replace("e+", "e") in text
    assert f"{total / chip('TPU v5').flops / 3600:,.0f} v5p chip-hours" in text


if __name__ == "__main__":
    write_golden()
