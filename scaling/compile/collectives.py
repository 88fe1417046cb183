"""What the collectives of a program send, per device, counted as rings send it.

In a group of g devices a ring all-gather brings each device the other g - 1 shards; a
reduce-scatter sends as much, an all-reduce is both, one after the other. In bytes of the
instruction's own element type.
"""

import math
import re

from scaling.compile.hlo import Computation, Instruction

KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")
_ALIASES = {"ragged-all-to-all": "all-to-all", "collective-broadcast": "collective-permute"}
_IOTA = re.compile(r"replica_groups=\[([0-9,]+)\]<=")
_MESH = re.compile(r"replica_groups=\S*mesh\[([^\]]*)\]\s*\{([^}]*)\}")
_PAIRS = re.compile(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}")


def kind(instruction: Instruction) -> str | None:
    """Which of KINDS an instruction is; None for others, and for the end of an asynchronous one."""
    name = instruction.opcode.removesuffix("-start")
    name = _ALIASES.get(name, name)
    return name if name in KINDS else None


def sent_bytes(computation: Computation, instruction: Instruction, n_devices: int) -> float:
    """Bytes that one device sends for a collective."""
    own = sum(operand.bytes for operand in computation.operands(instruction))
    name, g = kind(instruction), group_size(instruction, n_devices)
    if name == "collective-permute":
        pairs = _PAIRS.search(instruction.attributes)
        moves = not pairs or any(a != b for a, b in re.findall(r"(\d+),(\d+)", pairs[1]))
        return own if moves else 0.0
    if name == "all-gather":
        return own * (g - 1)
    return own * (g - 1) / g * (2 if name == "all-reduce" else 1)


def group_size(instruction: Instruction, n_devices: int) -> int:
    """Devices that take part in one group, of the largest group; without groups, all devices."""
    text = instruction.attributes
    mesh = _MESH.search(text)  # mesh['data'=4,'fsdp'=2] {'fsdp'}; part of an axis is 'data':(1)2
    if mesh:
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", mesh[1]))
        axes = re.findall(r"'([^']+)'(?::\(\d+\)(\d+))?", mesh[2])
        return math.prod(int(part or sizes[axis]) for axis, part in axes)
    iota = _IOTA.search(text)  # [groups, devices a group]<=[...]
    if iota:
        return int(iota[1].split(",")[-1])
    listed = re.search(r"replica_groups=\{(\{.*?\})\}", text)
    if listed:
        groups = re.findall(r"\{([^{}]*)\}", listed[1])
        return max(len([d for d in group.split(",") if d.strip()]) for group in groups)
    return n_devices
