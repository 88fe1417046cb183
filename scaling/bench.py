"""`make bench`: what a training step costs, as ratios measured side by side in one run.

Absolute times on shared machines are noise, so that variants take turns and every row is a ratio of
medians, with its physical floor and the target beside it. Stored in scaling/bench.json.
"""

import itertools
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import jax
import numpy as np
from rich.markup import escape

from kernels.depth_attention.bench import rows as kernel_rows
from scaling.bench_analysis import on_one_core
from scaling.bench_dynamics import dynamics_rows
from scaling.cells import expand
from scaling.console import make_console, make_table
from scaling.data import prepare, train_batches
from scaling.device import measure_matmul_flops
from scaling.files import write_json
from scaling.flops import train_flops
from scaling.memory import keep_memory
from scaling.study import load_study
from scaling.timing import Stepper, take_turns
from scaling.version import code_version

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "scaling" / "bench.json"
ROUNDS = 15


def main() -> None:
    """Measures, prints a table and stores JSON."""
    console = make_console()
    rows = [
        *_variants(console),
        _compiling(console),
        *(_utilisation(console, d, t) for d, t in ((256, 128), (256, 256), (512, 128))),
        _input(console),
        *dynamics_rows(console),
        _fit(),
        *on_one_core(),
        *kernel_rows(console, take_turns),
    ]
    table = make_table(
        "", {"measure": "left", "value": "right", "target": "right", "floor": "right"}
    )
    for row in rows:
        value = "-" if row["value"] is None else f"{row['value']:.3f}"  # what is not installed
        table.add_row(escape(row["measure"]), value, row["target"], row["floor"])
    console.print(table)
    machine = {
        "device": jax.devices()[0].device_kind,
        "cores": os.cpu_count(),
        "jax": jax.__version__,
    }
    when = datetime.now(UTC).isoformat(timespec="seconds")
    write_json(OUT, {"when": when, "code": code_version(), "machine": machine, "rows": rows})
    console.print(f"Wrote {OUT}")


def _variants(console) -> list[dict]:
    study = load_study(ROOT / "configs" / "cpu.yaml")
    cells = {cell.variant: cell for cell in expand(study, 256, ["d120"], seeds=[0])}
    console.print(f"stepping {', '.join(cells)} at the largest size of configs/cpu.yaml ...")
    steppers = {name: Stepper(cell) for name, cell in cells.items()}
    seconds = take_turns(steppers, ROUNDS)
    base, rows = cells["prenorm"], []
    for name, target in (("attnres_block", "<= 1.05"), ("attnres_full", "<= 1.15")):
        ratios = [a / b for a, b in zip(seconds[name], seconds["prenorm"], strict=True)]
        flops = train_flops(cells[name].model, 1, "with_head") / train_flops(
            base.model, 1, "with_head"
        )
        rows.append(
            {
                "measure": f"step time {name} / prenorm, d120",
                "value": median(ratios),
                "target": target,
                "floor": f"{flops:.3f} (FLOPs)",
                "quartiles": np.quantile(ratios, [0.25, 0.75]).tolist(),
            }
        )
    compiling = steppers["attnres_block"].compile_seconds / steppers["prenorm"].compile_seconds
    row = {"measure": "compile time attnres_block / prenorm, d120, unrolled", "value": compiling}
    return [*rows, row | {"target": "< 2", "floor": "1.000"}]


def _compiling(console) -> dict:
    """How much longer a step of 32 layers compiles than one of 8, in 8 blocks, layers scanned."""
    console.print("compiling attnres_block at 8 and 32 layers ...")
    seconds = {}
    for name, n_layers in (("prenorm", 8), ("attnres_block", 8), ("attnres_block", 32)):
        sets = [f"sizes.d64.n_layers={n_layers}", "model.scan=true", "data.seq_len=64"]
        study = load_study(ROOT / "configs" / "cpu.yaml", sets)
        cell = expand(study, 256, ["d64"], [name], [0])[0]
        seconds[name, n_layers] = Stepper(cell).compile_seconds
    return {
        "measure": "compile time attnres_block, 32 layers / 8 layers, 8 blocks",
        "value": seconds["attnres_block", 32] / seconds["attnres_block", 8],
        "target": "< 1.5",
        "floor": "1.000",
        "block_over_scanned_prenorm": seconds["attnres_block", 8] / seconds["prenorm", 8],
    }


def _utilisation(console, d_model: int, seq_len: int) -> dict:
    """The baseline's step (causal FLOPs, head included) as a share of the matrix-product rate."""
    console.print(f"stepping prenorm at d_model {d_model}, seq_len {seq_len} ...")
    sizes = [f"sizes.d120.{k}={v}" for k, v in (("d_model", d_model), ("n_heads", d_model // 64))]
    study = load_study(ROOT / "configs" / "cpu.yaml", [*sizes, f"data.seq_len={seq_len}"])
    cell = expand(study, 256, ["d120"], ["prenorm"], [0])[0]
    stepper, peaks = Stepper(cell), []

    def peak() -> float:
        peaks.append(measure_matmul_flops())
        return 0.0

    seconds = take_turns({"step": stepper, "peak": peak}, 7)["step"]
    flops = train_flops(cell.model, cell.tokens_per_step, "with_head")
    return {
        "measure": f"FLOPs of a step / fp32 matmul rate, d_model {d_model}, seq_len {seq_len}",
        "value": flops / median(seconds) / max(peaks),
        "target": ">= 0.5",
        "floor": "1.000",
        "matmul_gflops": max(peaks) / 1e9,
    }


def _input(console) -> dict:
    """Time the loop waits for data, as a share of the step, at the demo's smallest size."""
    console.print("feeding the smallest cell of configs/demo.yaml ...")
    study = load_study(ROOT / "configs" / "demo.yaml")
    cell = expand(study, 256, seeds=[study.seeds[0]])[0]
    stepper = Stepper(cell)
    corpus = prepare(cell.data.source, cell.data.tokenizer)
    batches = train_batches(
        corpus, seq_len=cell.data.seq_len, batch_size=cell.train.batch_size, seed=0
    )
    next(batches)
    waits, steps = [], []
    for _ in range(100):
        start = time.perf_counter()
        stepper.batch = stepper.program.put(next(batches))
        waits.append(time.perf_counter() - start)
        steps.append(stepper())
    return {
        "measure": f"waiting for data / step time, {cell.size}",
        "value": median(waits) / median(steps),
        "target": "< 0.05",
        "floor": "0",
    }


def _fit() -> dict:
    """`scaling fit` on 1,000 rows, start-up included, in seconds."""
    rng = np.random.default_rng(0)
    lines = ["variant,size,seed,train_flops,loss"]
    for variant, size, seed in itertools.product(range(10), range(5), range(20)):
        flops = 1e17 * 4**size
        loss = 3 * (flops / 1e17) ** -0.06 * (1 + 0.002 * rng.normal()) - 0.01 * variant
        label = "prenorm" if variant == 0 else f"v{variant}"
        lines.append(f"{label},s{size},{seed},{flops},{loss}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        path.write_text("\n".join(lines))
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            command = [sys.executable, "-m", "scaling", "fit", str(path)]
            subprocess.run(command, check=True, capture_output=True)
            seconds.append(time.perf_counter() - start)
    return {
        "measure": "scaling fit on 1,000 rows, seconds",
        "value": min(seconds),
        "target": "< 2",
        "floor": "",
    }


if __name__ == "__main__":
    if keep_memory():  # as the workers of a launch run; takes effect in a new process only
        os.execv(sys.executable, [sys.executable, "-m", "scaling.bench"])
    main()
