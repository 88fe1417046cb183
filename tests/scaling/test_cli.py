"""The command as a user meets it: a whole study, a kill, a relaunch, and every kind of refusal."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from scaling.results import COLUMNS


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A folder in which the micro study is trained once, by the first test that needs it."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def trained(shared, raw_study, write_study, command):
    """(study file, run directory, launch output) of the whole micro study."""
    study, log = write_study(raw_study), shared / "launch.log"
    if not log.exists():
        done = command("launch", study, "--out", shared, "--jobs", 2)
        log.write_text(done.stdout)
    return study, shared / "micro", log.read_text()


def rows(run):
    return pd.read_csv(run / "results.csv")


def test_a_study_from_launch_to_plots(trained, command):
    _, run, log = trained
    assert "9 of 9 cells done, 0 failed" in log and "\x1b" not in log
    commands = log[log.index("Next:") :].split("scaling ")[1:]
    assert [text.split()[0] for text in commands] == ["results", "fit", "gap", "plot", "report"]
    results = rows(run)
    assert list(results.columns) == list(COLUMNS)
    assert (results.status == "done").all() and len(results) == 9
    assert results.val_loss.between(1, 6).all() and results.data_fingerprint.nunique() == 1
    assert (results.bits_per_byte - results.val_loss / 0.6931471805599453).abs().max() < 0.2
    exact = json.loads((run / results.cell[0] / "summary.json").read_text())["val_loss"]
    assert results.val_loss[0] == exact  # unrounded

    fit = json.loads(command("fit", run, "--json").stdout)
    assert set(fit["fits"]["laws"]) == {"prenorm", "attnres_block", "attnres_full"}
    assert fit["flops_convention"] == "train_flops"
    assert (run / "fits.json").exists()
    text = command("fit", run).stdout
    assert "train_flops" in text and max(map(len, text.splitlines())) <= 100
    gap = json.loads(command("gap", run, "--json").stdout)
    assert len(gap["gap"]["by_size"]) == 3
    plots = command("plot", run).stdout
    assert "loss_vs_compute.png" in plots
    for path in (run / "plots").glob("*.png"):
        assert path.read_bytes()[:4] == b"\x89PNG" and path.with_suffix(".svg").exists()


def test_status_and_results(trained, command):
    _, run, _ = trained
    states = json.loads(command("status", run, "--json").stdout)
    assert [state["kind"] for state in states] == ["done"] * 9
    text = command("status", run).stdout
    assert "9 done, 0 running, 0 pending, 0 failed" in text
    before = (run / "results.csv").read_bytes()
    (run / "results.csv").unlink()
    text = command("results", run).stdout
    assert (run / "results.csv").read_bytes() == before
    assert "minus prenorm (nats)" in text and text.count("attnres_full") == 3
    assert "One paired seed gives no interval" in text


def test_launching_again_changes_nothing(trained, shared, command):
    study, run, _ = trained
    before = {p: p.stat().st_mtime_ns for p in run.glob("*/summary.json")}
    done = command("launch", study, "--out", shared)
    assert "9 of 9 cells are done already" in done.stdout
    assert {p: p.stat().st_mtime_ns for p in run.glob("*/summary.json")} == before


def test_an_edited_summary_is_said_and_run_again(trained, shared, command):
    study, run, _ = trained
    path = next(run.glob("d8-prenorm-*/summary.json"))
    text = path.read_text()
    record = json.loads(text)
    path.write_text(text.replace(str(record["val_loss"]), "1.0"))
    done = command("launch", study, "--out", shared, "--size", "d8", "--variant", "prenorm")
    assert "edited" in done.stdout and "1 of 1 cells done" in done.stdout
    again = json.loads(path.read_text())
    assert (again["val_loss"], again["weights_sha256"]) == (
        record["val_loss"],
        record["weights_sha256"],
    )


def test_another_configuration_is_refused(trained, shared, command):
    study, _, _ = trained
    done = command("launch", study, "--out", shared, "--set", "train.clip_norm=2", check=False)
    assert done.returncode == 2
    assert "train.clip_norm is 1.0 there and 2.0 here" in done.stderr


def test_changed_data_are_refused(trained, command, documents, tmp_path):
    study, run, _ = trained
    shutil.copytree(run, tmp_path / "runs" / "micro")
    next((tmp_path / "runs" / "micro").glob("d8-prenorm-*/summary.json")).unlink()
    extra = documents / "extra.txt"
    extra.write_text("one more document of some length " * 40)
    try:
        done = command("launch", study, check=False)
    finally:
        extra.unlink()
    assert done.returncode == 2 and "losses on different data" in done.stderr


def test_a_refused_launch_leaves_no_grid(raw_study, write_study, command, tmp_path):
    study = write_study(raw_study)
    done = command("launch", study, "--set", "data.validation_tokens=999999", check=False)
    assert done.returncode == 2
    assert not (tmp_path / "runs" / "micro" / "grid.json").exists()


PLUG_IN = """
from models.residuals.prenorm import PreNorm


class Half(PreNorm):
    summary = "half of every output"
    reduces_to_prenorm_at_init = False

    def write(self, state, site, y_BTD):
        return state._replace(carry=state.carry + FACTOR * y_BTD)
"""


def test_a_residual_of_ones_own_trains_and_an_edit_makes_it_another(
    raw_study, write_study, command, tmp_path
):
    raw_study["sizes"] = {"d8": raw_study["sizes"]["d8"]}
    raw_study["variants"] = {"prenorm": None, "half": {"residual": "mine:Half"}}
    study, module = write_study(raw_study), tmp_path / "mine.py"
    module.write_text(PLUG_IN.replace("FACTOR", "0.5"))
    command("launch", study)
    losses = rows(tmp_path / "runs" / "micro").set_index("variant").val_loss
    assert losses["half"] != losses["prenorm"]
    module.write_text(PLUG_IN.replace("FACTOR", "0.25"))
    done = command("launch", study, check=False)
    assert done.returncode == 2 and "half/s0 with another configuration" in done.stderr


def test_the_docs_own_residual_works_as_written(raw_study, write_study, command, tmp_path):
    page = Path(__file__).parents[2] / "docs" / "your-own-variant.md"
    written = page.read_text(encoding="utf-8").split("```python file=mine.py\n")[1]
    (tmp_path / "mine.py").write_text(written.split("```")[0])
    raw_study["sizes"] = {"d8": raw_study["sizes"]["d8"]}
    raw_study["variants"] = {"fading": {"residual": "mine:Fading"}}
    raw_study["baseline"] = "fading"
    assert "1 of 1 cells done, 0 failed" in command("launch", write_study(raw_study)).stdout


UNFINISHED = """
from flax import nnx
from models.residuals import Residual


class NoWrite(Residual):
    def init(self, x_BTD): ...
    def read(self, state, site): ...
    def readout(self, state): ...
"""


def test_a_residual_that_lacks_a_method_is_named(raw_study, write_study, command, tmp_path):
    raw_study["variants"]["x"] = {"residual": "unfinished:NoWrite"}
    (tmp_path / "unfinished.py").write_text(UNFINISHED)
    done = command("launch", write_study(raw_study), "--dry-run", check=False)
    assert done.returncode == 2
    assert "write" in done.stderr and "flops_per_token" in done.stderr
    assert "Traceback" not in done.stderr


def test_dry_run_shows_the_grid_and_trains_nothing(raw_study, write_study, command, tmp_path):
    done = command("launch", write_study(raw_study), "--dry-run")
    lines = done.stdout.splitlines()
    assert sum("pending" in line for line in lines) == 9
    assert "convention train_flops" in done.stdout and max(map(len, lines)) <= 100
    assert not (tmp_path / "runs").exists()


def start(study, out, *more):
    line = [sys.executable, "-m", "scaling", "launch", str(study), "--out", str(out), *more]
    return subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def wait_for(condition, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def long_study(raw_study):
    raw_study["sizes"] = {"d8": {**raw_study["sizes"]["d8"], "tokens": 128 * 300}}
    raw_study["variants"] = {"attnres_full": None, "prenorm": None}
    raw_study["train"].update(checkpoint_every=20, log_every=1)
    return raw_study


def test_kill_9_and_relaunch_end_in_the_same_bits(raw_study, write_study, command, tmp_path):
    study = write_study(long_study(raw_study))
    command("launch", study, "--out", "whole", "--variant", "attnres_full")
    expected = rows(tmp_path / "whole" / "micro")
    run = tmp_path / "parts" / "micro"

    def step():
        lines = [p.read_text().count("\n") for p in run.glob("*attnres_full*/metrics.jsonl")]
        return lines[0] if lines else 0

    for target in (30, 130):
        process = start(study, tmp_path / "parts", "--variant", "attnres_full")
        wait_for(lambda target=target: step() >= target, process)
        os.kill(process.pid, signal.SIGKILL)  # the worker must go down with its launcher
        process.communicate()
        deadline = time.monotonic() + 20
        while True:
            states = json.loads(command("status", run, "--json").stdout)
            if states[0]["kind"] != "running":
                break
            assert time.monotonic() < deadline, "the worker outlived its launcher"
        assert states[0]["kind"] == "pending" and "interrupted at step" in states[0]["note"]
        assert not (run / "results.csv").exists()
    command("launch", study, "--out", "parts", "--variant", "attnres_full")
    found = rows(run)
    assert sorted(found.status) == ["done", "pending"]  # the other variant was not asked for
    done, expected = (r[r.status == "done"].reset_index() for r in (found, expected))
    for column in ("val_loss", "val_loss_sem", "bits_per_byte", "steps"):
        assert (done[column] == expected[column]).all(), column

    def weights(folder):
        path = next((tmp_path / folder / "micro").glob("*/summary.json"))
        return json.loads(path.read_text())["weights_sha256"]

    assert weights("parts") == weights("whole")


def test_a_second_launch_is_told_who_holds_the_study(raw_study, write_study, command, tmp_path):
    raw = long_study(raw_study)
    for size in raw["sizes"].values():
        size["tokens"] *= 20  # it goes on until it is interrupted
    study = write_study(raw)
    first = start(study, tmp_path / "runs")
    wait_for(lambda: (tmp_path / "runs/micro/grid.json").exists(), first)
    second = command("launch", study, check=False)
    assert second.returncode == 2
    assert f"is being run by process {first.pid}" in second.stderr
    os.killpg(first.pid, signal.SIGINT)
    out, _ = first.communicate(timeout=60)
    assert first.returncode == 130, out


def worker_of(launcher: int) -> int:
    """The process id of a launcher's worker. (`ps` cuts its lines where there is no terminal.)"""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == launcher and b"spawn_main" in (folder / "cmdline").read_bytes():
                return int(folder.name)
    raise AssertionError("the launcher has no worker")


def test_a_dead_worker_fails_its_cell_and_the_grid_goes_on(
    raw_study, write_study, tmp_path, command
):
    study = write_study(long_study(raw_study))
    process = start(study, tmp_path / "runs")
    run = tmp_path / "runs" / "micro"
    wait_for(lambda: any(run.glob("*attnres_full*/metrics.jsonl")), process)
    os.kill(worker_of(process.pid), signal.SIGKILL)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 1
    assert "attnres_full/s0: failed: its process was killed by signal 9" in out
    assert "1 of 2 cells done, 1 failed" in out
    assert "failed" in command("status", run).stdout
    assert sorted(rows(run).status) == ["done", "failed"]


def test_a_diverging_cell_fails_alone(raw_study, write_study, command, tmp_path):
    raw_study["sizes"] = {"d8": raw_study["sizes"]["d8"], "bad": {
        **raw_study["sizes"]["d8"], "learning_rate": 1e30}}  # fmt: skip
    raw_study["variants"] = {"prenorm": None}
    done = command("launch", write_study(raw_study), check=False)
    assert done.returncode == 1
    assert "bad/prenorm/s0: failed: non-finite at step" in done.stdout
    assert "1 of 2 cells done, 1 failed" in done.stdout
    run = tmp_path / "runs" / "micro"
    failed = next(run.glob("bad-*"))
    assert "non-finite" in json.loads((failed / "failed.json").read_text())["reason"]
    assert not (failed / "summary.json").exists()
    assert (
        not any((failed / "checkpoints").glob("*")) if (failed / "checkpoints").exists() else True
    )


HOSTS = ("--coordinator", "127.0.0.1:9", "--processes", "2")
REFUSED = {
    "no such file": (["launch", "none.yaml"], "cannot be read"),
    "no such size": (["launch", "STUDY", "--size", "d9"], "no size 'd9'"),
    "no such variant": (["launch", "STUDY", "--variant", "preorm"], "did you mean 'prenorm'"),
    "bad override": (["launch", "STUDY", "--set", "train.x=1"], "train.x"),
    "bad source": (["launch", "STUDY", "--set", "data.source=hf:x"], "no known scheme"),
    "no data": (["launch", "STUDY", "--set", "data.source=files:/nowhere"], "/nowhere"),
    "long windows": (
        [
            *("launch", "STUDY", "--set", "data.seq_len=9000", "--set", "train.batch_size=1"),
            *(f"--set=sizes.{size}.tokens=9000" for size in ("d8", "d12", "d16")),
        ],
        "longer than the longest document",
    ),
    "out is a file": (["launch", "STUDY", "--out", "STUDY"], "Not a directory"),
    "infinite": (["launch", "STUDY", "--set", "train.clip_norm=.inf"], "train.clip_norm"),
    "validation": (["launch", "STUDY", "--set", "data.validation_tokens=999999"], "999999"),
    "half a cluster": (["launch", "STUDY", "--processes", "2"], "--processes without"),
    "no such process": (["launch", "STUDY", *HOSTS, "--process-id", "2"], "goes from 0 to 1"),
    "no coordinator": (
        ["launch", "STUDY", *HOSTS, "--process-id", "1", "--timeout", "1"],
        "process 1 of 2 could not reach process 0 at 127.0.0.1:9 within 1 s",
    ),
    "jobs on hosts": (
        ["launch", "STUDY", *HOSTS, "--process-id", "0", "--jobs", "2"],
        "--jobs 2 is for one host",
    ),
    "not a run": (["status", "nowhere"], "holds no study"),
    "results of nothing": (["results", "nowhere"], "holds no study"),
    "fit of nothing": (["fit", "nowhere"], "nowhere"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "words"), REFUSED.values(), ids=REFUSED)
def test_bad_input_exits_with_2_and_a_sentence(raw_study, write_study, command, arguments, words):
    study = str(write_study(raw_study))
    done = command(*[study if a == "STUDY" else a for a in arguments], check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr and "Traceback" not in done.stderr


def test_the_table_of_the_paper_is_fitted_at_once(command):
    text = command("fit", "attnres_table2").stdout
    assert "1.8622" in text or "1.862" in text


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [(["--help"], ["jax", "pandas", "scipy"]), (["fit", "attnres_table2"], ["jax", "flax"])],
)
def test_light_commands_do_not_import_heavy_libraries(arguments, absent):
    code = (
        "import sys; sys.argv = ['scaling', *ARGS]\n"
        "from scaling.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('LOADED', *(m for m in ABSENT if m in sys.modules))"
    )
    code = code.replace("*ARGS", repr(arguments)[1:-1]).replace("ABSENT", repr(absent))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "LOADED", done.stdout + done.stderr
