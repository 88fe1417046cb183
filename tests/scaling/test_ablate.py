"""ablation.parquet: what a source is worth, against models that are run without it by hand."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest

from models.residuals.reading import Reading
from scaling import ablate as ablate_module
from scaling.ablate import Cut, Losses, ablate, ablated_cells, cuts, sources_of
from scaling.data import prepare, validation_batches
from scaling.errors import UserError
from scaling.ledger import Ledger
from scaling.run import run_cell
from scaling.step import Program
from scaling.trained import trained_params


@pytest.fixture
def losses_of(make_cell):
    """losses_of(n_layers, options, change) -> (Losses, the cell's program, parameters, batch)."""

    def make(n_layers=1, options=None, change=lambda residual: None, variant="attnres_full"):
        cell = make_cell(variant)
        residual = cell.model.residual.model_copy(update={"options": options or {}})
        fields = {"n_layers": n_layers, "residual": residual}
        program = Program(cell.model_copy(update={"model": cell.model.model_copy(update=fields)}))
        params = program.init()["params"]
        params["embed"] = params["embed"] / jnp.std(params["embed"])  # sources of like size
        change(params["residual"])
        corpus = prepare(cell.data.source, cell.data.tokenizer)
        batches = validation_batches(corpus, seq_len=32, batch_size=4, n_tokens=128)
        return Losses(program, params, batches), program, params, batches[0]

    return make


def drawn(residual):
    """Queries that tell sources apart."""
    shape = residual["query"].shape
    residual["query"] = jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)


def test_two_sources_by_hand(losses_of):
    """One layer: the MLP reads the embedding and attention's output."""
    losses, program, params, batch = losses_of(change=drawn)
    model = program.model(params)
    layer = jax.tree.map(lambda leaf: leaf[0], model.layers)
    x = model.embed[batch["tokens"][:, :-1]]
    y, _ = layer.attend(x, lambda k, v: (k, v, None))

    def norm(v):
        v = np.float64(v)
        return v / np.sqrt(np.mean(v**2, -1, keepdims=True) + program.cell.model.norm_eps)

    def weights(values, read):
        query = np.float64(params["residual"]["query"][read])
        z = np.stack([norm(v) @ query for v in values])
        p = np.exp(z - z.max(0))
        return (p / p.sum(0))[..., None]

    def loss(mlp_reads):
        """Of the model whose MLP reads this."""
        z = layer.feed_forward(jnp.asarray(mlp_reads, jnp.float32))
        values = [np.float64(v) for v in (x, y, z)]
        h = sum(a * v for a, v in zip(weights(values, 2), values, strict=True))
        logits = norm(h) @ np.float64(params["head"])
        logits -= logits.max(-1, keepdims=True)
        nll = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(
            logits, batch["tokens"][:, 1:, None], -1
        ).squeeze(-1)
        return nll.mean()

    x64, y64 = np.float64(x), np.float64(y)
    a, b = weights([x64, y64], 1)
    read = {
        ("remove", 0): y64,
        ("remove", 1): x64,
        ("average", 0): a * x64.mean((0, 1)) + b * y64,
        ("average", 1): a * x64 + b * y64.mean((0, 1)),
    }
    np.testing.assert_allclose(losses(), loss(a * x64 + b * y64), rtol=1e-5)
    for (mode, source), h in read.items():
        found = losses(mode, Cut("mlp", 1, source, (1,)))
        np.testing.assert_allclose(found, loss(h), rtol=1e-5, err_msg=f"{mode} {source}")
        assert abs(found - losses()) > 1e-4


def test_a_source_of_no_weight_is_worth_nothing_and_the_only_one_everything(losses_of):
    """Five reads of two layers, whose logits are parameters: of each, one source has it all."""

    def change(residual):
        logits = np.full(2 + 3 + 4 + 5, -1e4, np.float32)
        for place in (1, 2 + 2, 5 + 3, 9 + 4):  # the latest source
            logits[place] = 0
        residual["logits"] = jnp.asarray(logits)

    losses, program, *_ = losses_of(2, {"query": "none"}, change)
    whole = losses()
    for cut in cuts(sources_of(program.cell.model)):
        latest = cut.source in [sources_of(program.cell.model)[read][-1] for read in cut.reads]
        for mode in ("remove", "average"):
            if latest:
                assert abs(losses(mode, cut) - whole) > 1e-3, (mode, cut)
            else:
                assert losses(mode, cut) == whole, (mode, cut)


def test_blocks_in_a_scan_and_short_validation_sets(losses_of):
    """The partial sum that a scanned block starts without is no source to take away."""
    losses, program, *_ = losses_of(4, {"n_blocks": 2}, drawn, "attnres_block")
    assert losses.n_tokens == 128
    sources = sources_of(program.cell.model)
    assert sources[4] == (0, 1) and sources[5] == (0, 1, 2)
    for cut in cuts(sources):
        if cut.sublayer in (4, -1):
            assert np.isfinite(losses("remove", cut)), cut


def test_cuts_leave_every_read_something():
    every = list(cuts([(0,), (0, 1), (0, 1, 2)]))
    assert every == [
        Cut("mlp", 1, 0, (1,)), Cut("mlp", 1, 1, (1,)),
        Cut("read", 2, 0, (2,)), Cut("read", 2, 1, (2,)), Cut("read", 2, 2, (2,)),
        Cut("mlp", -1, 0, (1,)), Cut("mlp", -1, 1, (1,)),
        Cut("", -1, 0, (1, 2)), Cut("", -1, 1, (1, 2)), Cut("", -1, 2, (2,)),
    ]  # fmt: skip


@pytest.mark.slow
def test_of_a_run(make_cell, tmp_path, command, monkeypatch):
    """From the checkpoint of a trained model to its file, its table and every refusal."""
    cells = [make_cell("prenorm"), make_cell("attnres_full"), make_cell("attnres_full", seed=1)]
    run = tmp_path / "micro"
    ledger = Ledger(run)
    ledger.add(cells, "prenorm")
    with pytest.raises(UserError, match="none of the 3 cells asked for"):
        ablated_cells(run)
    corpus = prepare(cells[0].data.source, cells[0].data.tokenizer)
    for cell in cells[:2]:
        run_cell(cell, ledger, corpus)
    with pytest.raises(UserError, match="none of the 1 cells asked for"):
        ablated_cells(run, seeds=[1])
    with pytest.raises(UserError, match="did you mean 'attnres_full'"):
        ablated_cells(run, variants=["attnres_ful"])
    done = command("ablate-sources", run, "--variant", "prenorm", check=False)
    assert done.returncode == 2 and "attends over depth (variants: prenorm)" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1

    assert [cell.key for cell in ablated_cells(run)] == ["d8/attnres_full/s0"]
    text = command("ablate-sources", run, "--tokens", 500).stdout
    assert "512 validation tokens" in text and max(map(len, text.splitlines())) <= 100
    assert "attention of layer 0" in text and "\x1b" not in text
    path = ledger.directory(cells[1]) / "ablation.parquet"
    table = pq.read_table(path)
    assert table.schema.equals(ablate_module.SCHEMA)
    found = table.to_pandas()
    # Reads 1 to 4 have 2 to 5 sources; of attention's read 2, of MLPs' 1 and 3, and of all.
    assert found.groupby("mode").size().to_dict() == {"average": 14 + 3 + 4 + 5, "remove": 26}
    assert np.isfinite(found.delta).all() and (found.delta.abs() > 0).any()

    assert set(found.tokens) == {512}
    again = ablate(cells[1], run, ("remove",), 500).to_pandas()
    assert set(again["mode"]) == {"remove"}
    np.testing.assert_array_equal(again.delta, found[found["mode"] == "remove"].delta)
    ablate(cells[1], run, ("average",), 128)  # one mode is measured anew, the other one stays
    kept = pq.read_table(path).to_pandas()
    assert kept.groupby("mode").tokens.unique().map(list).to_dict() == {
        "average": [128], "remove": [512],
    }  # fmt: skip
    np.testing.assert_array_equal(kept[kept["mode"] == "remove"].delta, again.delta)
    summary = json.loads((ledger.directory(cells[1]) / "summary.json").read_text())
    program = Program(cells[1])
    params = trained_params(program, run, corpus)
    losses = Losses(program, params, ablate_module._batches(cells[1], corpus, 1024))
    np.testing.assert_allclose(losses(), summary["val_loss"], rtol=1e-6)  # on the same tokens

    np.testing.assert_allclose(losses.trained(), losses(), rtol=1e-6)

    with monkeypatch.context() as patch:
        patch.setattr(Reading, "mixed", lambda self: self.values[-1])
        with pytest.raises(UserError, match="does not mix to what `read` reads"):
            ablate(cells[1], run, ("remove",), 500)
    run_cell(cells[2], ledger, corpus)
    for folder in (ledger.directory(cells[1]) / "checkpoints").glob("*.json"):
        folder.unlink()
    done = command("ablate-sources", run, "--tokens", 128, "--json", check=False)
    told = json.loads(done.stdout)
    assert done.returncode == 2 and "holds no intact checkpoint" in told["failed"][0]
    assert list(told["cells"]) == ["d8/attnres_full/s1"]  # is measured all the same
