"""However a model is split over eight devices, it learns the same as on one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scaling.cells import expand
from scaling.study import load_study

HERE = Path(__file__).parent
MESHES = {
    "one device": None,
    "fsdp 8": {"fsdp": 8},
    "data 8": {"data": 8},
    "tensor 2 x fsdp 4": {"tensor": 2, "fsdp": 4},
    "sequence 2 x data 4": {"sequence": 2, "data": 4},
}
ACCUMULATED = "attnres_block, two micro-batches, data 2 x fsdp 2 x tensor 2"
VARIANTS = {"prenorm": None, "attnres_block": {"n_blocks": 2}, "attnres_full": None}


@pytest.fixture(scope="module")
def losses(documents, tmp_path_factory) -> dict[str, list[float]]:
    """By variant and mesh; in one other process, since this one has a single device."""
    size = {"d_model": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "learning_rate": 0.01}
    raw = {
        "name": "sharded",
        "baseline": "prenorm",
        "data": {"source": f"files:{documents}", "seq_len": 16, "validation_tokens": 1024},
        "sizes": {"d32": {**size, "tokens": 20 * 16 * 16}},
        "variants": VARIANTS,
        "seeds": [0],
        "train": {"batch_size": 16},
    }
    path = tmp_path_factory.mktemp("sharded") / "study.yaml"
    path.write_text(json.dumps(raw), encoding="utf-8")
    runs = {
        f"{cell.variant}, {mesh}": (cell.model_dump(mode="json"), MESHES[mesh])
        for cell in expand(load_study(path), 256)
        for mesh in MESHES
    }
    cell = expand(load_study(path, ["train.accumulate=2"]), 256, [], ["attnres_block"])[0]
    runs[ACCUMULATED] = (cell.model_dump(mode="json"), {"data": 2, "fsdp": 2, "tensor": 2})
    done = subprocess.run(
        [sys.executable, "-W", "error", HERE / "sharded_training.py"],
        input=json.dumps(runs),
        env=os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [name for name, mesh in MESHES.items() if mesh])
@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_agree_with_one_device(losses, variant, mesh):
    alone, split = losses[f"{variant}, one device"], losses[f"{variant}, {mesh}"]
    assert alone[19] < 0.9 * alone[0]  # it learns
    np.testing.assert_allclose(split, alone, rtol=1e-5)


@pytest.mark.slow
def test_so_does_a_batch_in_two_halves(losses):
    np.testing.assert_allclose(losses[ACCUMULATED], losses["attnres_block, one device"], rtol=1e-5)
