"""Trackers get what the files say, once, whatever they do themselves."""

import json

import pytest

from scaling import tracking
from scaling.errors import UserError
from scaling.ledger import Ledger
from scaling.trackers import open_tracker
from scaling.tracking import Tracking


def append(path, *steps):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for step in steps:
            file.write(
                json.dumps({"step": step, "loss": 3 - step / 10, "tokens": 10 * step}) + "\n"
            )


class Recorder:
    def __init__(self, last_step=0):
        self.last_step, self.lines, self.summary = last_step, [], "open"

    def log(self, step, values):
        self.lines.append((step, values))

    def finish(self, summary):
        self.summary = summary


@pytest.fixture
def tracked(make_cell, tmp_path, monkeypatch):
    """(cell, metrics path, tracking, recorders, what was said)."""
    cell, ledger, said = make_cell(), Ledger(tmp_path / "runs"), []
    recorders = {"tensorboard": Recorder(), "wandb": Recorder()}
    monkeypatch.setattr(tracking, "open_tracker", lambda name, *_: recorders[name])
    told = Tracking(list(recorders), ledger, said.append)
    return cell, ledger, told, recorders, said


def test_every_whole_line_once_and_then_the_result(tracked):
    cell, ledger, told, recorders, _ = tracked
    path = ledger.directory(cell) / "metrics.jsonl"
    told.listen(cell, "start", "")
    append(path, 1, 2)
    told.listen(cell, "step", {})
    with path.open("a") as file:
        file.write('{"step": 3, "lo')  # half a line
    told.listen(cell, "step", {})
    with path.open("a") as file:
        file.write('ss": 2.7}\n')
    ledger.write_summary(cell, {"val_loss": 2.5, "steps": 3, "device_kind": "cpu"})
    told.listen(cell, "done", {})
    for recorder in recorders.values():
        assert [step for step, _ in recorder.lines] == [1, 2, 3]
        assert recorder.lines[0][1] == {"loss": 2.9, "tokens": 10}
        assert recorder.summary == {"val_loss": 2.5, "steps": 3}


def test_a_resumed_run_repeats_nothing(tracked):
    cell, ledger, told, recorders, _ = tracked
    append(ledger.directory(cell) / "metrics.jsonl", 1, 2, 3)
    recorders["wandb"].last_step = 2
    told.listen(cell, "start", "")
    told.listen(cell, "failed", "non-finite")
    assert [step for step, _ in recorders["wandb"].lines] == [3]
    assert [step for step, _ in recorders["tensorboard"].lines] == [1, 2, 3]
    assert recorders["wandb"].summary is None


def test_a_tracker_that_fails_is_left_out_and_said_so_once(tracked):
    cell, ledger, told, recorders, said = tracked

    def broken(*_):
        raise OSError("no route to host")

    recorders["wandb"].log = broken
    told.listen(cell, "start", "")
    append(ledger.directory(cell) / "metrics.jsonl", 1, 2)
    told.listen(cell, "step", {})
    told.listen(cell, "done", {})
    assert said == ["Tracker wandb is left out: no route to host"]
    assert [step for step, _ in recorders["tensorboard"].lines] == [1, 2]


def test_tensorboard_holds_the_numbers(make_cell, tmp_path):
    pytest.importorskip("tensorboardX")
    cell = make_cell()
    for _ in range(2):  # again, as after a resume: the old events go
        tracker = open_tracker("tensorboard", cell, tmp_path)
        tracker.log(5, {"loss": 2.5})
        tracker.finish({"val_loss": 2.25})
    (events,) = (tmp_path / "tensorboard").glob("events.*")
    data = events.read_bytes()
    assert b"loss" in data and b"result/val_loss" in data


def test_wandb_offline(make_cell, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    tracker = open_tracker("wandb", make_cell(), tmp_path)
    assert tracker.last_step == 0
    tracker.log(5, {"loss": 2.5})
    tracker.finish({"val_loss": 2.25})
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_mlflow_on_disk_and_gone_on_with(make_cell, tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    cell, folder = make_cell(), tmp_path / "cell"
    tracker = open_tracker("mlflow", cell, folder)
    tracker.log(5, {"loss": 2.5})
    again = open_tracker("mlflow", cell, folder)
    assert again.last_step == 5
    again.log(6, {"loss": 2.4})
    again.finish({"val_loss": 2.25})
    from mlflow import MlflowClient

    client = MlflowClient((tmp_path / "mlruns").as_uri())
    (experiment,) = [e for e in client.search_experiments() if e.name == cell.study]
    (run,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(5, 2.5), (6, 2.4)]
    assert run.data.metrics["result.val_loss"] == 2.25 and run.info.status == "FINISHED"


def test_a_tracker_whose_package_is_missing_is_named(make_cell, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match='pip install "wandb"'):
        open_tracker("wandb", make_cell(), tmp_path)
