"""The reader on compiled programs: bytes by hand, loops by identities, XLA's own cost analysis."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SHARD = 64 // 8 * 128 * 2  # bytes of bf16 a device holds; see programs.py
SENT = {
    "all-gather": 7 * SHARD,
    "all-reduce": 2 * SHARD * 7 / 8,
    "reduce-scatter": 8 * SHARD * 7 / 8,
    "all-to-all": SHARD * 7 / 8,
    "collective-permute": SHARD,
}


@pytest.fixture(scope="module")
def found() -> dict:
    """One process for all programs: the number of devices cannot change in this one."""
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[2]), "XLA_FLAGS": ""}
    line = [sys.executable, "-W", "error", HERE / "programs.py"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", SENT)
def test_a_bf16_collective_on_cpu_sends_two_bytes_an_element(found, kind):
    assert found["collectives"][kind] == {kind: SENT[kind]}


def test_without_loops_it_agrees_with_the_cost_analysis(found):
    ours, theirs = found["loop_free"]["flops"]
    assert ours == 2 * 256 * 1024 * (512 + 256)
    assert ours == pytest.approx(theirs, rel=0.01)  # theirs has the elementwise ones too
    ours, theirs = found["loop_free"]["bytes"]
    assert ours == pytest.approx(theirs, rel=0.01)


def test_twice_the_layers_of_a_scan_are_twice_the_cost(found):
    four, eight, _ = found["flops"]
    assert four == 4 * 3 * 2 * 8 * 64 * 64  # rows of one device, forward and backward
    assert eight == 2 * four
    assert found["sent"][1] == 2 * found["sent"][0]
    assert found["uncounted"] == [0, 0]


def test_a_scan_costs_what_its_layers_cost_one_after_the_other(found):
    assert found["flops"][2] == found["flops"][0]
