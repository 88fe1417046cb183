"""Trains on eight devices, run by test_sharded_training.py in a process of its own; prints JSON."""

import json
import sys

import jax
import numpy as np

from scaling.cells import Cell
from scaling.step import Program
from scaling.study import Mesh

STEPS = 20


def losses(cell: Cell, mesh: Mesh | None) -> list[float]:
    """Of STEPS steps, then of the validation rows; mesh None is one device."""
    devices = jax.devices() if mesh else jax.devices()[:1]
    program = Program(cell.model_copy(update={"mesh": mesh or Mesh()}), devices)
    state = program.init()
    where = jax.tree.map(lambda x: x.sharding, state)
    assert where == program.shardings
    rng = np.random.default_rng(0)
    shape = (cell.train.batch_size, cell.data.seq_len + 1)
    batches = [{"tokens": rng.integers(0, 64, shape, dtype=np.int32)} for _ in range(4)]
    step = program.compile_train(state, program.put(batches[0]))
    found = []
    for i in range(STEPS):
        state, metrics = step(state, program.put(batches[i % 4]))
        found.append(float(metrics["loss"]))
    rows, _ = program.compile_eval(state["params"], program.put(batches[0]))(
        state["params"], program.put(batches[0])
    )
    return [*found, *np.asarray(rows).tolist()]


def main() -> None:
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    runs = json.load(sys.stdin)
    print(json.dumps({
        name: losses(Cell.model_validate(cell), mesh and Mesh(**mesh))
        for name, (cell, mesh) in runs.items()
    }))  # fmt: skip


if __name__ == "__main__":
    main()
