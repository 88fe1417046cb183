"""What of a device's memory a program needs, and its largest tensors, from what the compiler wrote.

Files are those that XLA writes with `xla_dump_to`, which it does for programs that do not fit too.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from scaling.compile.hlo import Module

_ALLOCATION = re.compile(r"^allocation \d+: size (\d+), (.*)$")
_VALUE = re.compile(
    r"^ value: <\d+ ([^\s,(){}]+)(?:\{[^}]*\})? @\d+> \(size=(\d+),offset=(\d+)\): (\S+)"
)
_TOTAL = re.compile(r"Memory Space: default \(color=0\)\nTotal bytes: (\d+)")
_OTHER_SPACE = re.compile(r"S\([1-9]")


@dataclass(frozen=True, slots=True)
class Tensor:
    """So many equal buffers: their shape, the bytes of one, and where in the program they arise."""

    shape: str
    bytes: int
    count: int
    where: str


def needed_bytes(folder: Path) -> int | None:
    """All main memory that a program's buffers take; None where the compiler did not say."""
    for file in sorted(folder.glob("*memory-usage-report.txt")):
        found = _TOTAL.search(file.read_text(encoding="utf-8", errors="replace"))
        if found:
            return int(found[1])
    return None


def largest_tensors(folder: Path, module: Module, most: int = 5) -> list[Tensor]:
    """The kinds of tensor that take the most memory, largest first.

    Buffers that one place holds one after the other count once.
    """
    file = next(iter(sorted(folder.glob("*after_optimizations-buffer-assignment.txt"))), None)
    if file is None:
        return []
    named = {i.name: i.op_name for c in module.computations.values()
             for i in c.instructions.values()}  # fmt: skip
    slots: dict[tuple, tuple] = {}
    with file.open(encoding="utf-8", errors="replace") as lines:
        allocation, number, kind = None, 0, ""
        for line in lines:
            allocation = _ALLOCATION.match(line)
            if allocation:
                number, kind = number + 1, allocation[2]
                continue
            value = _VALUE.match(line)
            if value is None or "thread-local" in kind or _OTHER_SPACE.search(value[4]):
                continue
            name, size, offset, shape = value[1], int(value[2]), int(value[3]), value[4]
            held = slots.get((number, offset))
            if held is None or size > held[0]:
                where = "argument" if kind.startswith("parameter") else _short(named.get(name, ""))
                slots[number, offset] = (size, shape.split("{")[0], where)
    groups: dict[tuple, int] = {}
    for slot in slots.values():
        groups[slot] = groups.get(slot, 0) + 1
    ranked = sorted(groups.items(), key=lambda item: -item[0][0] * item[1])[:most]
    return [Tensor(shape, size, count, where) for (size, shape, where), count in ranked]


def _short(op_name: str) -> str:
    """Where an operation stands, without what jax's transformations wrap around it."""
    parts = [p for p in op_name.split("/") if not p.startswith(("jit(", "closed_call", "while"))]
    return "/".join(parts[-3:])
