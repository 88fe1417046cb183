"""Sharded equals unsharded, on eight devices that a CPU pretends to have."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sharded import CHECKS

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def problems() -> dict[str, str]:
    """One process for all checks: the number of devices cannot change in this one."""
    done = subprocess.run(
        [sys.executable, "-W", "error", HERE / "sharded.py"],
        env=os.environ
        | {
            "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
            "JAX_PLATFORMS": "cpu",
            "JAX_NUMPY_RANK_PROMOTION": "raise",
            "JAX_NUMPY_DTYPE_PROMOTION": "strict",
            "PYTHONPATH": str(HERE.parents[1]),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("check", CHECKS)
def test_sharded_equals_unsharded(problems, check):
    assert not problems[check], problems[check]
