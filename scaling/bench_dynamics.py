"""What looking inside costs, as a share of training time (`python -m scaling.bench_dynamics`)."""

import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from scaling.cells import expand
from scaling.console import make_console
from scaling.data import prepare
from scaling.dynamics import Dynamics, Probe, interval
from scaling.study import load_study
from scaling.timing import Stepper, take_turns

DEMO = Path(__file__).resolve().parent.parent / "configs" / "demo.yaml"
CELLS = (("d20", "prenorm"), ("d20", "attnres_full"), ("d48", "attnres_full"))
ROUNDS = 25


def dynamics_rows(console) -> list[dict]:
    """Rows of `make bench`: all that scaling.dynamics does in a run over the run's steps."""
    study, rows = load_study(DEMO), []
    corpus = prepare(study.data.source, study.data.tokenizer)
    for size, variant in CELLS:
        console.print(f"looking inside {size} {variant} of configs/demo.yaml ...")
        rows.append(_row(expand(study, 256, [size], [variant])[0], corpus))
    return rows


def _row(cell, corpus) -> dict:
    stepper = Stepper(cell)
    params, probe = stepper.program.init()["params"], Probe(stepper.program, corpus)
    with tempfile.TemporaryDirectory() as folder:
        dynamics = Dynamics(cell, probe, Path(folder) / "dynamics.parquet", 0, print)

        def look() -> float:
            start = time.perf_counter()
            dynamics.look(1, params, probe.copy(params))
            return time.perf_counter() - start

        def write() -> float:
            start = time.perf_counter()
            dynamics.write()
            return time.perf_counter() - start

        look()
        timed = {"look": look, "write": write, "step": stepper}
        seconds = take_turns(timed, 2 * ROUNDS)
    # Every other round goes backwards, and there `write` has nothing new to write.
    rounds = [dict(zip(seconds, each, strict=True)) for each in zip(*seconds.values(), strict=True)]
    ratios = {name: [r[name] / r["step"] for r in rounds[::2]] for name in ("look", "write")}
    every = interval(cell)
    n_looks = len({0, *range(0, cell.steps + 1, every), cell.steps})
    n_writes = -(-cell.steps // cell.train.checkpoint_every)
    spent = [
        (n_looks * a + n_writes * b) / cell.steps
        for a, b in zip(ratios["look"], ratios["write"], strict=True)
    ]
    return {
        "measure": f"looks inside / training time, {cell.size} {cell.variant}",
        "value": median(spent),
        "target": "<= 0.02",
        "floor": f"{n_looks / cell.train.batch_size / cell.steps:.3f} (FLOPs)",
        "quartiles": np.quantile(spent, [0.25, 0.75]).tolist(),
        "look_over_step": median(ratios["look"]),
        "write_over_step": median(ratios["write"]),
        "steps_between_looks": every,
    }


if __name__ == "__main__":
    console = make_console()
    for row in dynamics_rows(console):
        console.print(row)
