"""`python -m scaling.bench_analysis`: how long the analysis takes, on one core; prints JSON rows.

In CPU seconds, which on one core are those of the clock, whatever else runs. Data are made up, as
many as in the cases that they stand for, since the public ones do not ship.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pandas as pd


def main() -> None:
    """All rows, as one JSON list."""
    print(json.dumps([_surface(), _report(), _start_up()]))


def on_one_core() -> list[dict]:
    """The rows, measured in a process of their own that has one core."""
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "scaling.bench_analysis"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    return json.loads(done.stdout)


def _fastest(run: Callable[[], object], repeats: int = 3) -> float:
    seconds = []
    for _ in range(repeats):
        start = _cpu_seconds()
        run()
        seconds.append(_cpu_seconds() - start)
    return min(seconds)


def _cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _surface() -> dict:
    """As many points and decades as the 240 of Besiroglu et al., arXiv 2404.10102, by their law."""
    from analysis import fit_surface

    rng = np.random.default_rng(0)
    N, D = 10 ** rng.uniform(7.7, 10.2, 240), 10 ** rng.uniform(9, 11.5, 240)
    loss = 1.82 + 482 / N**0.348 + 2085 / D**0.366
    loss = loss * np.exp(0.004 * rng.standard_t(3, 240))
    return {
        "measure": "L(N, D) of 240 points with 4,000 bootstrap refits, CPU seconds",
        "value": _fastest(lambda: fit_surface(N, D, loss, n_resamples=4000)),
        "target": "< 20",
        "floor": "",
    }


def _report() -> dict:
    from analysis import load, report

    rng, rows = np.random.default_rng(0), []
    sizes = 0.004 * rng.normal(size=5)
    for variant, m in (("prenorm", 1.0), ("attnres_block", 1.2), ("attnres_full", 1.3)):
        for i, C in enumerate(np.geomspace(0.5, 8, 5)):
            for seed in range(3):
                e = sizes[i] + 0.0014 * rng.normal()
                rows.append((variant, f"S{i}", seed, 1.9 * (m * C) ** -0.06 * np.exp(e), C))
    df = load(pd.DataFrame(rows, columns=["variant", "size", "seed", "loss", "pflops_days"]))
    return {
        "measure": "whole analysis of 5 sizes x 3 variants, 10,000 resamples, CPU seconds",
        "value": _fastest(lambda: report(df, n_resamples=10_000, with_forms=True)),
        "target": "< 3",
        "floor": "",
    }


def _start_up() -> dict:
    """From the shell to all that a fit imports; fails if JAX or matplotlib is among it."""
    code = (
        "import sys; import scaling.cli, analysis; "
        "sys.exit('jax' in sys.modules or 'matplotlib' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    return {
        "measure": "start-up of scaling fit, all its imports and no JAX, CPU seconds",
        "value": _fastest(lambda: subprocess.run(command, check=True), 5),
        "target": "< 1.2",
        "floor": "",
    }


if __name__ == "__main__":
    main()
