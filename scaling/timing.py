"""Steps to be timed, in turns."""

import itertools
import time
from collections.abc import Callable

import numpy as np

from scaling.cells import Cell
from scaling.step import Program


class Stepper:
    """One cell's compiled step on random tokens, ready to be timed."""

    def __init__(self, cell: Cell):
        self.cell, self.program = cell, Program(cell)
        self.state = self.program.init()
        shape = (cell.train.batch_size, cell.data.seq_len + 1)
        tokens = np.random.default_rng(0).integers(0, 256, shape, dtype=np.int32)
        self.batch = self.program.put({"tokens": tokens})
        start = time.perf_counter()
        self.compiled = self.program.compile_train(self.state, self.batch)
        self.compile_seconds = time.perf_counter() - start
        self()

    def __call__(self) -> float:
        """Seconds of one step."""
        start = time.perf_counter()
        self.state, metrics = self.compiled(self.state, self.batch)
        metrics["loss"].block_until_ready()
        return time.perf_counter() - start


def take_turns(timed: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each, one measurement of every one a round, in changing order."""
    seconds = {name: [] for name in timed}
    orders = itertools.cycle([list(timed), list(timed)[::-1]])
    for order in itertools.islice(orders, rounds):
        for name in order:
            seconds[name].append(timed[name]())
    return seconds
