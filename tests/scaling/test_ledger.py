"""The books: what counts as done, what never does."""

import json

import pytest

from scaling.errors import UserError
from scaling.files import lock
from scaling.ledger import Ledger
from scaling.metrics import Metrics


@pytest.fixture
def cell(make_cell):
    return make_cell()


@pytest.fixture
def ledger(tmp_path, cell):
    ledger = Ledger(tmp_path / "micro")
    ledger.add([cell], "prenorm")
    return ledger


def test_states_in_the_order_of_a_life(ledger, cell):
    assert ledger.status(cell).kind == "pending"
    with lock(ledger.lock_path(cell)):
        metrics = Metrics(ledger.directory(cell) / "metrics.jsonl", 0, 5)
        metrics.add(5, 2.0)
        metrics.write(5, seconds=10.0)
        metrics.close()
        running = ledger.status(cell)
        assert (running.kind, running.step, running.seconds_left) == ("running", 5, 30.0)
    assert ledger.status(cell).note == "interrupted at step 5"
    ledger.write_failure(cell, "non-finite at step 7")
    assert (ledger.status(cell).kind, ledger.status(cell).note) == (
        "failed",
        "non-finite at step 7",
    )
    ledger.write_summary(cell, {"val_loss": 1.25})
    assert ledger.status(cell).kind == "done"
    assert ledger.summary(cell)[0]["val_loss"] == 1.25


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda text: text[:-9], "truncated"),
        (lambda text: "", "truncated"),
        (lambda text: "[1, 2]", "damaged"),
        (lambda text: text.replace("1.25", "1.24"), "edited"),
    ],
)
def test_a_damaged_or_edited_summary_counts_as_unfinished(ledger, cell, damage, word):
    ledger.write_summary(cell, {"val_loss": 1.25})
    path = ledger.directory(cell) / "summary.json"
    path.write_text(damage(path.read_text()))
    record, problem = ledger.summary(cell)
    assert record is None and word in problem and "unfinished" in problem
    assert ledger.status(cell).kind == "pending" and word in ledger.status(cell).note


def test_a_summary_of_another_configuration_counts_as_unfinished(ledger, cell):
    other = cell.model_copy(update={"steps": 21})
    ledger.write_summary(other, {"val_loss": 1.0})
    ledger.directory(cell).mkdir(parents=True, exist_ok=True)
    text = (ledger.directory(other) / "summary.json").read_text()
    (ledger.directory(cell) / "summary.json").write_text(text)
    assert "another configuration" in ledger.summary(cell)[1]


def test_two_configurations_of_one_cell_are_never_mixed(ledger, cell):
    changed = cell.model_copy(update={"train": cell.train.model_copy(update={"clip_norm": 3.0})})
    with pytest.raises(UserError, match=r"train.clip_norm is 1.0 there and 3.0 here"):
        ledger.add([changed], "prenorm")
    more = cell.model_copy(update={"seed": 9})
    ledger.add([cell, more], "prenorm")
    assert [c.seed for c in ledger.cells()] == [0, 9]


@pytest.mark.parametrize("text", ["5\n", '{"step": 3}\n', "\n"])
def test_odd_metrics_and_failures_do_not_break_the_books(ledger, cell, text):
    folder = ledger.directory(cell)
    folder.mkdir()
    (folder / "metrics.jsonl").write_text(text)
    assert ledger.status(cell).kind == "pending"
    (folder / "failed.json").write_text("[]")
    assert ledger.status(cell).kind == "failed"
    (folder / "metrics.jsonl").write_bytes(b"\xff\xfe")
    Metrics(folder / "metrics.jsonl", 4, 2).close()


def test_a_damaged_grid_is_never_overwritten(ledger, cell):
    path = ledger.root / "grid.json"
    path.write_text(path.read_text()[:100])
    with pytest.raises(UserError, match="missing or damaged"):
        ledger.add([cell], "prenorm")


@pytest.mark.parametrize("text", [None, "", "{}", '{"cells": [{}]}'])
def test_a_folder_that_holds_no_study(tmp_path, text):
    if text is not None:
        (tmp_path / "grid.json").write_text(text)
    with pytest.raises(UserError, match="holds no study"):
        Ledger(tmp_path).cells()


def test_metrics_after_the_checkpoint_are_dropped_on_resume(tmp_path):
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(path, 0, 2)
    for step in range(1, 7):
        if metrics.add(step, float(step)):
            metrics.write(step)
    metrics.close()
    with path.open("a") as file:
        file.write('{"step": 7, "lo')  # a line torn by a kill
    Metrics(path, 4, 2).close()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == [{"step": 2, "loss": 1.5}, {"step": 4, "loss": 3.5}]
