"""`make bench`, second part: what every residual connection costs, beside what it has to cost.

At the largest size of configs/cpu.yaml, each variant in turns with PreNorm. The roofline of a
variant is the baseline's measured step, plus its declared additional FLOPs at the rate of matrix
products, plus its declared additional traffic at the rate of an elementwise sum of two arrays of
activations, both three times, for backward. PreNorm's own row is the noise. Stored in
scaling/bench_zoo.json; names of variants measure these alone, in the place of their rows.
"""

import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import jax
import jax.numpy as jnp

from models.residuals import BUILT_IN, find
from scaling.cells import Cell, expand
from scaling.console import make_console, make_table
from scaling.device import measure_matmul_flops
from scaling.files import write_json
from scaling.flops import train_flops
from scaling.memory import keep_memory
from scaling.study import load_study
from scaling.timing import Stepper, take_turns
from scaling.version import code_version

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "scaling" / "bench_zoo.json"
ROUNDS, LIMIT = 7, 1.5
OPTIONS = {"mrla": ", head_dim: 8"}  # its 16 channels a head do not divide 120


def main(names: list[str]) -> None:
    """Measures those named, or all; prints a table of all that is known and stores it as JSON."""
    console, names = make_console(), names or list(BUILT_IN)
    known = json.loads(OUT.read_text(encoding="utf-8"))["rows"] if OUT.exists() else []
    rows = {row["variant"]: row for row in known}
    base = Stepper(_cell("prenorm"))
    bandwidth, rate = _bandwidth(base.cell), measure_matmul_flops()
    now = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "code": code_version()}
    for number, name in enumerate(names, 1):
        console.print(f"[{number}/{len(names)}] {name} ...", markup=False)
        rows[name] = _row(name, base, rate, bandwidth) | now
    rows = [rows[name] for name in BUILT_IN if name in rows]
    headings = {"step": "step", "roofline": "roofline", "step_over_roofline": "step/roofline",
                "saved": "saved", "temporaries": "temporaries", "compile": "compile"}  # fmt: skip
    title = f"Relative to PreNorm, {base.cell.size} of configs/cpu.yaml"
    table = make_table(title, {"variant": "left"} | dict.fromkeys(headings.values(), "right"))
    for row in rows:
        table.add_row(row["variant"], *(f"{row[key]:.2f}" for key in headings))
    console.print(table)
    late = [row["variant"] for row in rows if row["step_over_roofline"] > LIMIT]
    console.print(f"Slower than {LIMIT}x of the roofline: {', '.join(late) or 'none'}")
    machine = {"device": jax.devices()[0].device_kind, "cores": os.cpu_count(),
               "jax": jax.__version__, "bytes_per_second": bandwidth, "flops": rate}  # fmt: skip
    write_json(OUT, {"machine": machine, "rows": rows})
    console.print(f"Wrote {OUT}")


def _row(name: str, base: Stepper, rate: float, bandwidth: float) -> dict:
    """One variant, taking turns with the baseline alone: more models would not fit the memory."""
    stepper = Stepper(_cell(name))
    seconds = take_turns({"base": base, "variant": stepper}, ROUNDS)
    ratio = median(a / b for a, b in zip(seconds["variant"], seconds["base"], strict=True))
    more = _additional_seconds(stepper.cell, base.cell, rate, bandwidth)
    roofline = 1 + more / median(seconds["base"])
    return {
        "variant": name,
        "step": ratio,
        "roofline": roofline,
        "step_over_roofline": ratio / roofline,
        "saved": _saved(stepper.cell) / _saved(base.cell),
        "temporaries": _temporaries(stepper) / _temporaries(base),
        "compile": stepper.compile_seconds / base.compile_seconds,
    }


def _cell(name: str) -> Cell:
    study = load_study(
        ROOT / "configs" / "cpu.yaml",
        [f"variants.{name}={{residual: {name}{OPTIONS.get(name, '')}}}"],
    )
    return expand(study, 256, ["d120"], [name], [0])[0]


def _additional_seconds(cell: Cell, base: Cell, rate: float, bandwidth: float) -> float:
    """Of a training step, beyond the baseline's, by what the variant declares."""
    flops = train_flops(cell.model, cell.tokens_per_step)
    flops -= train_flops(base.model, base.tokens_per_step)
    elements = find(cell.model.residual.name).io_per_token(cell.model)
    elements -= find("prenorm").io_per_token(base.model)
    moved = 3 * 4 * elements * cell.model.n_sublayers * cell.tokens_per_step
    return flops / rate + moved / bandwidth


def _saved(cell: Cell) -> float:
    return find(cell.model.residual.name).saved_activations(cell.model) or float("nan")


def _temporaries(stepper: Stepper) -> int:
    return stepper.compiled.memory_analysis().temp_size_in_bytes


def _bandwidth(cell: Cell) -> float:
    """Bytes a second of x + y, of the size of activations between sublayers."""
    shape = (cell.train.batch_size, cell.data.seq_len, cell.model.d_model)
    x, y = jnp.ones(shape), jnp.ones(shape)
    add = jax.jit(jnp.add)
    add(x, y).block_until_ready()
    seconds = []
    for _ in range(50):
        start = time.perf_counter()
        add(x, y).block_until_ready()
        seconds.append(time.perf_counter() - start)
    return 3 * x.nbytes / median(seconds)


if __name__ == "__main__":
    if keep_memory():  # as the workers of a launch run; takes effect in a new process only
        os.execv(sys.executable, [sys.executable, "-m", "scaling.bench_zoo", *sys.argv[1:]])
    main(sys.argv[1:])
