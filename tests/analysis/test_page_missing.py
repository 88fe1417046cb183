"""A study of which something is missing or damaged has its page, which says so."""

import json
import shutil

import numpy as np
import pytest
from made_up_runs import log, made_up_cells, made_up_run
from made_up_studies import study as made_up_table
from pages import data_of, table

from analysis import Refusal, load
from analysis.page import Study, page_data
from analysis.page.logs import read_log
from analysis.page.training import MOST_POINTS, thinned
from analysis.report import report
from scaling.files import lock
from scaling.ledger import Ledger
from scaling.results import write_results


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory):
    return made_up_run(tmp_path_factory.mktemp("runs") / "made-up", seeds=2, inside=True).root


@pytest.fixture
def run(shared_run, tmp_path):
    return shutil.copytree(shared_run, tmp_path / "made-up")


def test_no_finished_cell(tmp_path):
    ledger = Ledger(tmp_path / "made-up")
    cells = made_up_cells(["prenorm", "attnres_full"])
    ledger.add(cells, "prenorm")
    with lock(ledger.lock_path(cells[0])):
        log(ledger, cells[0], share=0.5)
        data = data_of(ledger.root)
    assert len(data["verdict"]) == 1 and "No run has status 'done'" in data["verdict"][0]
    assert data["cells"]["counts"] == {"done": 0, "running": 1, "pending": 9, "failed": 0}
    assert data["compute"] is None and data["tables"] == {}
    (curve,) = data["training"]["runs"]
    assert curve["state"] == "running" and data["downloads"]["fits.json"] is None
    assert data["dynamics"]["notes"] == ["No dynamics recorded."]


def test_nothing_but_a_grid_that_is_damaged(tmp_path):
    (tmp_path / "grid.json").write_text("{")
    data = data_of(tmp_path)
    assert any("damaged" in words for words in data["missing"])
    assert any("No results" in words for words in data["missing"])


def test_results_without_a_grid(tmp_path):
    made_up_table({"prenorm": 1.0, "x": 1.2}).to_csv(tmp_path / "results.csv", index=False)
    data = data_of(tmp_path)
    assert any("no grid.json" in words for words in data["missing"])
    assert "x" in data["verdict"][0] and data["configuration"] == []


def test_one_variant(tmp_path):
    data = data_of(made_up_run(tmp_path / "one", ["prenorm"]).root)
    assert "nothing to compare it with" in data["verdict"][0]
    assert "exponent 0.0" in data["verdict"][1] and "multipliers" not in data["tables"]
    assert data["compute"]["multipliers"]["train_flops"] == []


def test_one_size(tmp_path):
    data = data_of(made_up_run(tmp_path / "one", widths=(16,)).root)
    assert data["verdict"][0].startswith("No law was fitted") and "1 size" in data["verdict"][0]
    assert "3 runs at 1 size" in data["verdict"][1]
    assert data["tables"]["sizes"] and len(data["compute"]["runs"]) == 3
    assert all("refused" in law for law in data["compute"]["laws"]["train_flops"])


def test_a_variant_with_too_few_sizes_keeps_nobody_from_a_law(run):
    ledger = Ledger(run)
    for cell in ledger.cells():
        if cell.variant == "attnres_full" and cell.size not in ("d16", "d24"):
            (ledger.directory(cell) / "summary.json").unlink()
            ledger.write_failure(cell, "non-finite loss at step 3")
    write_results(ledger)
    with pytest.raises(Refusal, match="at least 3"):
        report(load(run), "prenorm")
    data = data_of(run)
    assert any("Left out of the fits" in w and "'attnres_full'" in w for w in data["missing"])
    assert set(table(data, "multipliers", "multipliers-table")) == {"attnres_block"}
    (failed,) = data["cells"]["tables"]
    assert len(failed["rows"]) == 6 and failed["rows"][0][2] == "non-finite loss at step 3"


def test_a_fit_that_is_refused(tmp_path):
    df = made_up_table({"prenorm": 1.0, "x": 1.2}, alpha=-0.05)
    data = page_data(df, Study("flat", labels={"baseline": "prenorm"}))
    assert "No variant could be compared" in data["verdict"][0]
    (multipliers,) = data["tables"]["multipliers"]
    assert multipliers["rows"] == [] and "no-usable-slope" in multipliers["claims"][0]


def test_a_baseline_that_is_not_done(run):
    ledger = Ledger(run)
    for cell in ledger.cells():
        if cell.variant == "prenorm":
            (ledger.directory(cell) / "summary.json").unlink()
    write_results(ledger)
    data = data_of(run)
    assert any("No run of the baseline 'prenorm' is done" in words for words in data["missing"])
    assert "no multipliers" in data["verdict"][0] and data["tables"]["laws"]


def test_metrics_that_are_half_written(run):
    ledger = Ledger(run)
    first, second, third, *_ = ledger.cells()
    for cell, damage in ((first, b'{"step": 17, "lo'), (second, b"\xff\x00 torn\n{}\n")):
        path = ledger.directory(cell) / "metrics.jsonl"
        path.write_bytes(path.read_bytes() + damage)
    (ledger.directory(third) / "metrics.jsonl").unlink()
    data = data_of(run)
    assert sum(second.id in words for words in data["missing"]) == 1
    shown = {r["cell"]: len(r["curve"]["s"]) for r in data["training"]["runs"]}
    assert shown[first.id] == shown[second.id] == 200 and third.id not in shown


def test_dynamics_that_are_damaged(run):
    ledger = Ledger(run)
    first, second, *_ = ledger.cells()
    (ledger.directory(first) / "dynamics.parquet").write_bytes(b"PAR1 torn")
    (ledger.directory(second) / "dynamics.parquet").unlink()
    data = data_of(run)
    (note,) = data["dynamics"]["notes"]
    assert first.id in note
    assert not {first.id, second.id} & set(data["dynamics"]["cells"])


def test_a_log_of_a_million_steps(tmp_path):
    steps = np.arange(1, 1_000_001)
    loss = 2 + np.sin(steps / 3e4)
    loss[123_456] = 9.0
    lines = (
        f'{{"step": {s}, "loss": {v}, "tokens": {s}}}\n' for s, v in zip(steps, loss, strict=True)
    )
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(lines))
    read = read_log(path)
    assert len(read.steps) == 1_000_000 and read.damage is None
    curve = thinned(read.steps, read.loss)
    assert all(len(curve[key]) <= MOST_POINTS for key in ("s", "m", "lo", "hi"))
    assert max(curve["hi"]) == 9.0 and curve["s"][-1] == 1_000_000
    assert np.mean(curve["m"]) == pytest.approx(loss.mean(), abs=1e-3)


def test_a_step_that_is_logged_twice_counts_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    records = [(1, 3.0), (2, 2.0), (2, 2.5), (3, float("nan"))]
    lines = [json.dumps({"step": s, "loss": v, "tokens": s}) for s, v in records]
    path.write_text("\n".join(lines))
    assert read_log(path).steps.tolist() == [1, 2] and read_log(path).loss.tolist() == [3.0, 2.5]


def test_options_of_another_hand_are_passed_over(run):
    wrong = {"holdout": 3, "resamples": "many", "at": [1], "seed": 7}
    (run / "fits.json").write_text(json.dumps({"options": wrong}))
    options = data_of(run)["downloads"]["fits.json"]["options"]
    assert options["seed"] == 7 and options["resamples"] == 10_000 and options["at"] is None
