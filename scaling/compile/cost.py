"""What one run of a compiled program costs a device, loops taken as often as they run."""

from dataclasses import dataclass, field

from scaling.compile import collectives
from scaling.compile.flops import product_flops
from scaling.compile.hlo import Computation, Instruction, Module
from scaling.compile.kernels import is_kernel
from scaling.compile.loops import Known, loop_parts, trip_count
from scaling.compile.rates import Rates
from scaling.compile.traffic import traffic

_CYCLES = r'"estimated_cycles":"(\d+)"'


@dataclass(slots=True)
class Cost:
    """Per device.

    Attributes:
      flops: of matrix products and convolutions, and what Pallas kernels declare.
      bytes: read and written by every top-level instruction, in whatever memory.
      hbm_bytes: the part of them in main memory.
      seconds: by XLA's own rule (its `optimal_seconds`): each instruction takes the longer of its
        FLOPs and its bytes at the rates that XLA knows of the chip; collectives count as their
        bytes in memory. 0 without rates.
      cycles: of the core, as the TPU compiler's scheduler estimates each fusion.
      unpriced: seconds of instructions for which it gives no cycles (Pallas kernels), by the rule.
      collective_bytes: sent, by kind; see `collectives`.
      collective_count: runs of a collective, by kind.
      uncounted_loops: loops taken as one run since their count could not be read off.
    """

    flops: float = 0.0
    bytes: float = 0.0
    hbm_bytes: float = 0.0
    seconds: float = 0.0
    cycles: float = 0.0
    unpriced: float = 0.0
    collective_bytes: dict[str, float] = field(default_factory=dict)
    collective_count: dict[str, float] = field(default_factory=dict)
    uncounted_loops: int = 0

    def add(self, other: "Cost", times: float = 1) -> None:
        """Adds `times` runs of another."""
        for name in ("flops", "bytes", "hbm_bytes", "seconds", "cycles", "unpriced"):
            setattr(self, name, getattr(self, name) + times * getattr(other, name))
        for name in ("collective_bytes", "collective_count"):
            mine = getattr(self, name)
            for kind, amount in getattr(other, name).items():
                mine[kind] = mine.get(kind, 0.0) + times * amount
        self.uncounted_loops += other.uncounted_loops


def program_cost(module: Module, n_devices: int, rates: Rates | None = None) -> Cost:
    """The cost of one run of a module that `n_devices` run together."""
    return _Counter(module, n_devices, rates).computation(module.entry, None)


class _Counter:
    def __init__(self, module: Module, n_devices: int, rates: Rates | None):
        self.module, self.n_devices, self.rates = module, n_devices, rates

    def computation(self, at: Computation, known: Known) -> Cost:
        total = Cost()
        for instruction in at.instructions.values():
            self._add(total, at, instruction, known)
        return total

    def _add(self, total: Cost, at: Computation, instruction: Instruction, known: Known) -> None:
        opcode = instruction.opcode.removesuffix("-start")
        if opcode == "while":
            runs, lasting = trip_count(self.module, at, instruction, known)
            condition, body = loop_parts(self.module, instruction)
            total.uncounted_loops += runs is None
            total.add(self.computation(body, lasting), 1 if runs is None else runs)
            total.add(self.computation(condition, lasting), 1 if runs is None else runs + 1)
        elif opcode == "conditional":
            branches = [self.computation(self.module.computations[name], None)
                        for name in instruction.called]  # fmt: skip
            total.add(max(branches, key=lambda cost: (cost.seconds, cost.flops, cost.bytes)))
        elif opcode in ("call", "async"):
            for name in instruction.called:
                total.add(self.computation(self.module.computations[name], None))
        else:
            self._add_simple(total, at, instruction)

    def _add_simple(self, total: Cost, at: Computation, instruction: Instruction) -> None:
        flops = product_flops(at, instruction)
        self._add_collective(total, at, instruction)
        if instruction.opcode.removesuffix("-start") == "fusion":
            flops += self._inside(total, self.module.computations[instruction.called[0]])
        moved = traffic(self.module, at, instruction)
        seconds = self.rates.seconds(flops, moved.bytes) if self.rates else 0.0
        cycles = (
            instruction.attribute(_CYCLES) if "estimated_cycles" in instruction.attributes else 0
        )
        total.flops += flops
        total.bytes += moved.bytes
        total.hbm_bytes += moved.hbm
        total.seconds += seconds
        total.cycles += int(cycles)
        total.unpriced += seconds if not cycles and is_kernel(instruction) else 0.0

    def _inside(self, total: Cost, fused: Computation) -> float:
        """FLOPs in a fusion, which may hold others, and collectives too."""
        flops = 0.0
        for inner in fused.instructions.values():
            flops += product_flops(fused, inner)
            self._add_collective(total, fused, inner)
            if inner.opcode == "fusion":
                flops += self._inside(total, self.module.computations[inner.called[0]])
        return flops

    def _add_collective(self, total: Cost, at: Computation, instruction: Instruction) -> None:
        kind = collectives.kind(instruction)
        if kind is not None:
            sent = collectives.sent_bytes(at, instruction, self.n_devices)
            total.collective_bytes[kind] = total.collective_bytes.get(kind, 0.0) + sent
            total.collective_count[kind] = total.collective_count.get(kind, 0.0) + 1
