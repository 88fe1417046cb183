"""One cell from start to summary: resumes bitwise, fails cleanly, saves what it should."""

import json

import pytest

from scaling import checkpoint
from scaling import run as run_module
from scaling.data import prepare
from scaling.ledger import Ledger
from scaling.run import CellFailedError, run_cell


@pytest.fixture
def corpus(make_cell):
    spec = make_cell().data
    return prepare(spec.source, spec.tokenizer)


def lines(ledger, cell):
    text = (ledger.directory(cell) / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def without_time(rows):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


class Killed(BaseException):
    """Stands for a SIGKILL inside one process: nothing that catches Exception sees it."""


def test_interrupted_anywhere_it_ends_in_the_same_bits(make_cell, corpus, tmp_path):
    cell = make_cell("attnres_block")
    assert cell.steps == 20
    whole = Ledger(tmp_path / "whole")
    run_cell(cell, whole, corpus)
    expected = whole.summary(cell)[0]

    parts = Ledger(tmp_path / "parts")
    for stop in (3, 14, 20):

        def report(event, stop=stop):
            if event["step"] == stop:
                raise Killed

        with pytest.raises(Killed):
            run_cell(cell, parts, corpus, report)
        assert parts.summary(cell)[0] is None
    run_cell(cell, parts, corpus)
    found = parts.summary(cell)[0]
    for key in ("weights_sha256", "val_loss", "val_loss_sem", "bits_per_byte", "data_fingerprint",
                "peak_memory_bytes"):  # fmt: skip
        assert found[key] == expected[key], key
    # Weights, gradients and AdamW's two moments, all fp32, and what the sublayers keep.
    assert 16 * found["n_params"] < found["peak_memory_bytes"] < 160 * found["n_params"]
    assert without_time(lines(parts, cell)) == without_time(lines(whole, cell))


def test_the_last_step_is_saved_once_whatever_the_interval(make_cell, corpus, tmp_path):
    cell, ledger = make_cell().model_copy(update={"steps": 13}), Ledger(tmp_path)
    run_cell(cell, ledger, corpus)
    assert sorted(checkpoint.steps(ledger.directory(cell) / "checkpoints")) == [10, 13]
    assert [row["step"] for row in lines(ledger, cell)] == [5, 10, 13]


@pytest.mark.parametrize("bad_step", [7, 10, 11])
def test_a_non_finite_step_stops_the_cell_and_is_never_saved(
    make_cell, corpus, tmp_path, not_finite_at, bad_step
):
    not_finite_at(bad_step)
    cell, ledger = make_cell(), Ledger(tmp_path)
    with pytest.raises(CellFailedError, match=f"non-finite at step {bad_step}"):
        run_cell(cell, ledger, corpus)
    saved = checkpoint.steps(ledger.directory(cell) / "checkpoints")
    assert saved == ([10] if bad_step > 10 else [])
    assert ledger.summary(cell) == (None, "")
    assert all(row["step"] < bad_step for row in lines(ledger, cell))


def test_a_checkpoint_of_other_data_is_not_continued(make_cell, corpus, tmp_path):
    cell, ledger = make_cell(), Ledger(tmp_path)

    def report(event):
        if event["step"] == 15:
            raise Killed

    with pytest.raises(Killed):
        run_cell(cell, ledger, corpus, report)
    import dataclasses

    other = dataclasses.replace(corpus, fingerprint="0123456789abcdef")
    with pytest.raises(CellFailedError, match=f"data {corpus.fingerprint}.*0123456789abcdef"):
        run_cell(cell, ledger, other)


def test_going_on_on_other_devices_is_said(make_cell, corpus, tmp_path):
    cell, ledger, said = make_cell(), Ledger(tmp_path), []

    def report(event):
        if event["step"] == 15:
            raise Killed

    with pytest.raises(Killed):
        run_cell(cell, ledger, corpus, report, said.append)
    path = ledger.directory(cell) / "checkpoints" / "10.json"
    manifest = json.loads(path.read_text())
    assert manifest["extra"]["layout"] == {"processes": 1, "devices": 1, "mesh": {}}
    manifest["extra"]["layout"] = {"processes": 2, "devices": 4, "mesh": {"data": 2, "fsdp": 2}}
    path.write_text(json.dumps(manifest))
    run_cell(cell, ledger, corpus, say=said.append)
    assert said == [
        "d8/prenorm/s0: was trained to step 10 on 2 processes x 2 devices (data=2, fsdp=2), goes "
        "on on 1 process x 1 device: same data order; sums may round differently"
    ]
    record = ledger.summary(cell)[0]
    assert (record["n_processes"], record["mesh"]) == (1, "")
    assert record["mfu"] is record["tokens_per_second"] is None  # of two machines: no such number


def test_a_checkpoint_of_another_model_fails_the_cell(make_cell, corpus, tmp_path):
    cell, ledger = make_cell(), Ledger(tmp_path)
    run_cell(cell, ledger, corpus)
    path = ledger.directory(cell) / "checkpoints" / "20.json"
    path.write_text(path.read_text().replace("int32[]", "int64[]"))
    with pytest.raises(CellFailedError, match=r"step is int64\[\] there and int32\[\] here"):
        run_cell(cell, ledger, corpus)


def test_variants_of_a_seed_see_the_same_batches_and_seeds_do_not(
    make_cell, corpus, tmp_path, monkeypatch
):
    seen = {}
    real = run_module.Program.put

    def put(self, batch):
        key = (self.cell.variant, self.cell.seed)
        seen.setdefault(key, []).append(batch["tokens"].tobytes())
        return real(self, batch)

    monkeypatch.setattr(run_module.Program, "put", put)
    for variant, seed in (("prenorm", 0), ("attnres_block", 0), ("prenorm", 1)):
        run_cell(make_cell(variant, seed=seed), Ledger(tmp_path), corpus)
    assert seen["prenorm", 0] == seen["attnres_block", 0]
    assert seen["prenorm", 0] != seen["prenorm", 1]
    assert len(set(seen["prenorm", 0])) > 20


RECIPES = {"muon wsd": {"optimizer": "muon", "schedule": "wsd"}, "accumulate": {"accumulate": 2}}


@pytest.mark.parametrize("train", RECIPES.values(), ids=RECIPES)
def test_every_recipe_resumes_bitwise(make_cell, corpus, tmp_path, train):
    cell, whole, parts = make_cell(**train), Ledger(tmp_path / "a"), Ledger(tmp_path / "b")
    run_cell(cell, whole, corpus)

    def report(event):
        if event["step"] == 13:
            raise Killed

    with pytest.raises(Killed):
        run_cell(cell, parts, corpus, report)
    run_cell(cell, parts, corpus)
    expected, found = whole.summary(cell)[0], parts.summary(cell)[0]
    assert found["weights_sha256"] == expected["weights_sha256"]
    assert found["val_loss"] < 5.5
