"""Whole training steps, batch split over four devices, through the TPU compiler without a TPU."""

import re

import pytest

from scaling.cells import expand
from scaling.step import Program
from scaling.study import load_study

pytestmark = [pytest.mark.tpu_aot, pytest.mark.usefixtures("no_compile_cache")]
SIZE = {"d_model": 128, "n_layers": 4, "n_heads": 1, "learning_rate": 1e-3, "tokens": 8192}


@pytest.mark.parametrize("remat", ["none", "block"])
@pytest.mark.parametrize("variant", ["prenorm", "attnres_block", "attnres_full"])
def test_a_training_step_compiles_for_tpus(raw_study, write_study, tpu_devices, variant, remat):
    raw_study |= {"sizes": {"d128": SIZE}, "model": {"dtype": "bfloat16", "remat": remat}}
    raw_study["data"]["seq_len"] = 256
    cell = expand(load_study(write_study(raw_study)), 320, variants=[variant])[0]
    program = Program(cell, tpu_devices("v5e:2x2"))
    text = program.compile_train(*program.shapes()).as_text()

    kernels = re.findall(r"depth_attention_(forward|backward)", text)
    assert bool(kernels) == (variant != "prenorm")
    # Weights are gathered, and token numbers; but every device reads its own tokens' sources.
    gathered = re.findall(r"= (?:bf16|f32)\[([\d,]+)\]\S* all-gather(?:-start)?\(", text)
    assert gathered and not any("256" in dims.split(",") for dims in gathered)
