"""`make bench-tpu`: a training step by the TPU compiler's own estimate, without a TPU.

One v5p chip, d_model 1024, 16 layers, 4 sequences of 2,048 tokens, bf16; depth is unrolled, because
the estimate counts the body of a loop once. A Pallas call enters it by the cost it declares: bytes
moved by its BlockSpecs over the memory bandwidth, or FLOPs over the matrix units' peak if that is
longer. That its arithmetic runs on the vector units is not seen. Minutes a row; stored in
scaling/bench_tpu.json.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

import jax
from jax.experimental import topologies

from scaling.cells import expand
from scaling.console import make_console, make_table
from scaling.files import write_json
from scaling.step import Program
from scaling.study import load_study
from scaling.version import code_version

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "scaling" / "bench_tpu.json"
TOPOLOGY = "v5p:2x2x1"
SIZE = "{d_model: 1024, n_layers: 16, n_heads: 8, d_ff: 2816, learning_rate: 1e-3, batch_size: 4}"
SETTINGS = (f"sizes={{d1024: {SIZE}}}", "data.seq_len=2048", "model.dtype=bfloat16")
VOCAB = 32_000
RUNS = (
    ("prenorm", "auto"),
    ("attnres_block", "auto"),
    ("attnres_full", "auto"),
    ("attnres_block", "xla"),
)


def main(runs=RUNS) -> None:
    """Compiles, prints a table and stores JSON."""
    console = make_console()
    columns = dict.fromkeys(("variant", "implementation"), "left")
    columns |= dict.fromkeys(("seconds", "/ prenorm", "GB", "/ prenorm ", "compiled in"), "right")
    table, rows = make_table("", columns), []
    for variant, implementation in runs:
        console.print(f"compiling {variant} ({implementation}) for {TOPOLOGY} ...")
        row = {"variant": variant, "implementation": implementation} | estimate(
            variant, implementation
        )
        rows.append(row)
        base = rows[0]
        table.add_row(
            variant,
            implementation,
            f"{row['seconds']:.4f}",
            f"{row['seconds'] / base['seconds']:.3f}",
            f"{row['bytes'] / 1e9:.1f}",
            f"{row['bytes'] / base['bytes']:.3f}",
            f"{row['compile_seconds']:.0f} s",
        )
    console.print(table)
    when = datetime.now(UTC).isoformat(timespec="seconds")
    machine = {"topology": TOPOLOGY, "jax": jax.__version__}
    write_json(OUT, {"when": when, "code": code_version(), "machine": machine, "rows": rows})


def estimate(variant: str, implementation: str) -> dict:
    """The compiler's seconds and bytes of one step, and how long it took to compile."""
    devices = topologies.get_topology_desc(platform="tpu", topology_name=TOPOLOGY).devices[:1]
    settings = [*SETTINGS, f"model.implementation={implementation}", "model.scan=false"]
    study = load_study(ROOT / "configs" / "cpu.yaml", settings)
    cell = expand(study, VOCAB, ["d1024"], [variant], [0])[0]
    start = datetime.now(UTC)
    program = Program(cell, devices)
    cost = program.compile_train(*program.shapes()).cost_analysis()
    return {
        "seconds": cost["optimal_seconds"],
        "bytes": cost["bytes accessed"],
        "compile_seconds": (datetime.now(UTC) - start).total_seconds(),
    }


if __name__ == "__main__":
    main([tuple(run.split(":")) for run in sys.argv[1:]] or RUNS)
