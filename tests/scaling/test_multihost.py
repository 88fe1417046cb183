"""Two processes of two devices each learn what one process does, and end well when one is lost."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hosts import digest, train

from scaling.ledger import Ledger
from scaling.study import Mesh

HERE = Path(__file__).parent
HOST = socket.gethostname()
RESUMES = "the same command goes on from the last checkpoints"


def environment(devices: int) -> dict:
    return os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def run(requests: list[dict], devices: int) -> list[dict]:
    """What `hosts.py` finds, in processes side by side."""
    line = [sys.executable, str(HERE / "hosts.py")]
    processes = [
        subprocess.Popen(
            [*line, json.dumps(request)],
            env=environment(devices),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for request in requests
    ]
    try:
        outputs = [process.communicate(timeout=400) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert all(process.returncode == 0 for process in processes), outputs
    lines = [out.splitlines()[-1].removeprefix("FOUND ") for out, _ in outputs]
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    return tmp_path_factory.mktemp("roots")


@pytest.fixture
def cell(make_cell):
    """10 steps of 8 rows, in two micro-batches."""
    intervals = {"checkpoint_every": 5, "dynamics_every": 5}
    return make_cell("attnres_block", batch_size=8, accumulate=2, **intervals)


FOUND = {}


@pytest.fixture
def found(roots, cell, monkeypatch):
    """One process with one device and with four, and two processes of two; run once."""
    if not FOUND:
        plain = {"cell": cell.model_dump(mode="json"), "place": None, "restore": []}
        split = cell.model_copy(update={"mesh": Mesh(data=2, fsdp=2)}).model_dump(mode="json")
        FOUND["1x1"] = [train(cell, roots / "1x1")]
        FOUND["1x4"] = run([{**plain, "cell": split, "root": str(roots / "1x4")}], 4)
        place = {"coordinator": f"127.0.0.1:{free_port()}", "processes": 2}
        here = {**plain, "root": str(roots / "2x2"), "restore": [str(roots / "1x4")]}
        FOUND["2x2"] = run([{**here, "place": {**place, "process": i}} for i in (0, 1)], 2)
    return FOUND


@pytest.mark.slow
@pytest.mark.parametrize("how", ["1x4", "2x2"])
def test_losses_are_those_of_one_device(found, roots, cell, how):
    expected = found["1x1"][0]["losses"]
    assert len(expected) == cell.steps == 10 and expected[-1] < 0.95 * expected[0]
    for one in found[how]:
        assert one["devices"] == 4
        np.testing.assert_allclose(one["losses"], expected, rtol=1e-5)
    wanted, got = (Ledger(roots / name).summary(cell)[0] for name in ("1x1", how))
    for key in ("val_loss", "val_loss_sem", "bits_per_byte"):
        assert got[key] == pytest.approx(wanted[key], rel=1e-5)
    assert (got["n_processes"], got["n_devices"]) == (len(found[how]), 4)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["1x4", "2x2"])
def test_every_step_has_the_same_rows_whoever_reads_them(found, how):
    expected = found["1x1"][0]["batches"]
    for number, batch in enumerate(expected):
        parts = [one["batches"][number] for one in found[how]]
        rows = {int(row): content for part in parts for row, content in part.items()}
        assert rows == batch
        assert all(len(part) == 8 / len(parts) for part in parts)  # each reads its own share


@pytest.mark.slow
def test_all_look_at_the_model_and_one_writes(found, roots, cell):
    one, two = (
        pq.read_table(Ledger(roots / how).directory(cell) / "dynamics.parquet").to_pandas()
        for how in ("1x4", "2x2")
    )
    assert two.step.unique().tolist() == [0, 5, 10]
    np.testing.assert_allclose(two.pop("value"), one.pop("value"), rtol=1e-4)
    assert two.equals(one)


@pytest.mark.slow
def test_a_checkpoint_goes_from_one_process_to_two_and_back(found, roots, cell):
    step, one_of_four = digest(cell, roots / "1x4")
    assert step == 10
    assert [one["digests"] for one in found["2x2"]] == [[[step, one_of_four]]] * 2
    step, _ = digest(cell, roots / "2x2")  # here one process reads what two have written
    weights = Ledger(roots / "2x2").summary(cell)[0]["weights_sha256"]
    assert step == 10 and read_weights(cell, roots / "2x2") == weights


def read_weights(cell, root) -> str:
    from scaling import checkpoint
    from scaling.run import _digest
    from scaling.step import Program

    folder = Ledger(root).directory(cell) / "checkpoints"
    return _digest(checkpoint.restore(folder, Program(cell).shapes()[0])[1]["params"])


@pytest.mark.slow
def test_processes_tell_each_other_what_they_find(found):
    for one in found["2x2"]:
        assert one["exchanged"] == [{"process": 0}, {"process": 1}]
        assert one["refusals"] == [
            "no",
            f"process 1 of 2 ({HOST}): no",
            f"process 1 of 2 ({HOST}): /nowhere/x: No such file or directory",
        ]


@pytest.mark.slow
def test_a_late_process_is_named(found):
    assert found["2x2"][0]["late"] == (
        f"process 1 of 2 ({HOST}) did not reach 'checkpoint of step 500' within 1 s; {RESUMES}"
    )


HANGS = """
import sys, time
from scaling import multihost
from scaling.places import Place
process = int(sys.argv[2])
multihost.start(Place(sys.argv[1], 2, process), timeout=8)
for step in range(5 - process):
    multihost.note("train", step)
time.sleep(100)
"""


@pytest.mark.slow
def test_where_nothing_moves_all_end_and_the_slowest_is_named():
    coordinator = f"127.0.0.1:{free_port()}"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", HANGS, coordinator, str(process)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in (0, 1)
    ]
    try:
        said = [process.communicate(timeout=90)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [1, 1]
    slowest = f"process 1 of 2 ({HOST}), at step 3 (train)"
    sentence = f"nothing moved for 8 s: the slowest is {slowest}; {RESUMES}."
    assert all(sentence in text for text in said)


@pytest.fixture
def launch(write_study, raw_study, tmp_path):
    """launch(*flags) -> the processes of two hosts; those still running are killed at the end."""
    raw_study["sizes"] = {"d8": {**raw_study["sizes"]["d8"], "tokens": 128 * 400}}
    raw_study["variants"] = {"prenorm": None}
    raw_study["train"].update(checkpoint_every=20, log_every=1)
    study, started = write_study(raw_study), []

    def launch(*flags, hosts=2):
        line = [sys.executable, "-m", "scaling", "launch", str(study), "--out", str(tmp_path)]
        if hosts > 1:
            line += ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", str(hosts)]
        for i in range(hosts):
            mine = ["--process-id", str(i)] if hosts > 1 else []
            started.append(
                subprocess.Popen(
                    [*line, *mine, *flags],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env=environment(4 // hosts),
                )
            )
        return started[-hosts:]

    yield launch
    for process in started:
        process.kill()
        process.communicate()


def wait_for_step(run: Path, step: int, processes) -> None:
    deadline = time.monotonic() + 240
    while True:
        lines = sum(path.read_text().count("\n") for path in run.glob("*/metrics.jsonl"))
        if lines >= step:
            return
        for process in processes:
            assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_when_one_is_killed_the_other_says_so_and_a_relaunch_resumes(launch, tmp_path, victim):
    processes = launch("--timeout", "15")
    wait_for_step(tmp_path / "micro", 45, processes)
    os.kill(processes[victim].pid, signal.SIGKILL)
    other, start = processes[1 - victim], time.monotonic()
    _, said = other.communicate(timeout=90)
    assert time.monotonic() - start < 60
    assert other.returncode == 1, said
    sentence = said.splitlines()[-1]
    assert sentence.startswith(f"scaling: process {'0 of 2' if victim == 0 else '1 of 2'}") or (
        victim == 0 and sentence.startswith("scaling: process 1 of 2 was ended by JAX")
    )
    assert sentence.endswith(f"{RESUMES}.")
    if victim == 1:
        assert f"process 1 of 2 ({HOST}), last at step" in sentence
        assert "has not been heard from for 15 s" in sentence
        [one] = launch(hosts=1)
        out, said = one.communicate(timeout=240)
        assert one.returncode == 0, out + said
        assert "interrupted at step" in out and "1 of 1 cells done, 0 failed" in out
        note = "on 2 processes x 2 devices (fsdp=4), goes on on 1 process x 4 devices (fsdp=4)"
        assert note in " ".join(out.split())
