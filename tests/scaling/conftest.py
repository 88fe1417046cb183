"""A study so small that a cell takes seconds, and the command as a user types it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from scaling.cells import Cell, expand
from scaling.step import Program
from scaling.study import Study, load_study


@pytest.fixture
def raw_study(documents) -> dict:
    """Three sizes, three variants; some 30 steps a cell."""
    size = {"n_layers": 2, "n_heads": 1, "learning_rate": 0.01}
    return {
        "name": "micro",
        "baseline": "prenorm",
        "data": {"source": f"files:{documents}", "seq_len": 32, "validation_tokens": 1024},
        "sizes": {
            "d8": {"d_model": 8, "tokens": 2560, **size},
            "d12": {"d_model": 12, "tokens": 3840, **size},
            "d16": {"d_model": 16, "tokens": 5120, **size},
        },
        "variants": {"prenorm": None, "attnres_block": {"n_blocks": 2}, "attnres_full": None},
        "seeds": [0],
        "train": {"batch_size": 4, "checkpoint_every": 10, "log_every": 5, "dynamics_every": 0},
    }


@pytest.fixture
def write_study(tmp_path):
    """write(raw) -> path of a study file."""

    def write(raw: dict) -> Path:
        path = tmp_path / "micro.yaml"
        path.write_text(yaml.safe_dump(raw, sort_keys=False), encoding="utf-8")
        return path

    return write


@pytest.fixture
def make_cell(raw_study, write_study):
    """cell(variant, **train): one cell of the micro study, size d8."""

    def make(variant: str = "prenorm", seed: int = 0, **train) -> Cell:
        raw_study["train"].update(train)
        study: Study = load_study(write_study(raw_study))
        return expand(study, 256, ["d8"], [variant])[0].model_copy(update={"seed": seed})

    return make


@pytest.fixture
def command(tmp_path):
    """command(*arguments) -> CompletedProcess, run in a fresh process in a scratch folder."""

    def run(*arguments, check: bool = True) -> subprocess.CompletedProcess:
        line = [sys.executable, "-W", "error::UserWarning", "-m", "scaling", *map(str, arguments)]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, env=os.environ)
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def not_finite_at(monkeypatch):
    """not_finite_at(bad_step): the training step reports a non-finite number after so many."""

    def spoil(bad_step: int) -> None:
        real = Program.compile_train

        def compile_train(self, state, batch):
            step = real(self, state, batch)

            def broken(state, batch):
                now = int(state["step"]) + 1
                state, metrics = step(state, batch)
                return state, {**metrics, "finite": metrics["finite"] & (now != bad_step)}

            broken.memory_analysis = lambda: None  # as of a backend that keeps no account
            return broken

        monkeypatch.setattr(Program, "compile_train", compile_train)

    return spoil
