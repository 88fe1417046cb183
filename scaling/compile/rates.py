"""The rates at which XLA's cost analysis takes a TPU to compute and to move data, and its clock.

The rates were found from `optimal_seconds` of programs that are bound by one of them (a test
repeats that); they are 80% to 100% of the data sheets'. The clock is the cores' own.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one device as jax counts them: FLOP/s in bf16, bytes/s, cycles/s."""

    flops: float
    bandwidth: float
    clock: float

    def seconds(self, flops: float, moved: float) -> float:
        """The longer of computing and moving."""
        return max(flops / self.flops, moved / self.bandwidth)


RATES = {
    "TPU v4": Rates(274e12, 0.9825e12, 1.05e9),
    "TPU v5 lite": Rates(197e12, 0.7377e12, 1.5e9),
    "TPU v5": Rates(394e12, 2.3504e12, 1.75e9),
    "TPU v6 lite": Rates(918e12, 1.638e12, 1.75e9),
    "TPU7x": Rates(996e12, 3.686e12, 1.9e9),
}
