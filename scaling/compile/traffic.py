"""Bytes that one HLO instruction reads and writes, a fusion taken as one instruction.

The rules are those of XLA's own cost analysis, but for a copy in two halves (`copy-start` and
`copy-done`): that analysis counts it twice, and here it is one read and one write. Tiles' padding
is not counted.
"""

from dataclasses import dataclass

from scaling.compile.hlo import Computation, Instruction, Module
from scaling.compile.kernels import declared
from scaling.compile.shapes import Array

# Names, views and waits: nothing moves.
_FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id",
    "replica-id", "opt-barrier", "domain", "add-dependency", "iota",
}  # fmt: skip
_FREE_CALLS = {
    "AllocateBuffer",
    "ConcatBitcast",
    "AssumeGatherIndicesInBound",
}  # the TPU compiler's
_CALLS = {"while", "call", "conditional", "async"}
_VIEWS = {"bitcast", "get-tuple-element", "reshape"}


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes read and written, and the part of them that is in the device's main memory."""

    bytes: float = 0.0
    hbm: float = 0.0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.bytes + other.bytes, self.hbm + other.hbm)

    def __mul__(self, times: float) -> "Traffic":
        return Traffic(self.bytes * times, self.hbm * times)


def traffic(module: Module, computation: Computation, instruction: Instruction) -> Traffic:
    """What a top-level instruction moves; loops, calls and branches move nothing themselves."""
    opcode = instruction.opcode
    base = opcode.removesuffix("-start")
    if opcode in _FREE or opcode.endswith(("-done", "-update")) or base in _CALLS:
        return Traffic()
    if base == "fusion":
        return _fusion(module, computation, instruction)
    if opcode == "copy-start":
        target, source = instruction.outputs[:2]
        return _whole(target) + _whole(source)
    if opcode == "custom-call":
        given = declared(instruction)
        if "bytes_accessed" in given:
            return Traffic(given["bytes_accessed"], given["bytes_accessed"])
        if instruction.attribute(r'custom_call_target="(\w+)"') in _FREE_CALLS:
            return Traffic()
    operands = computation.operands(instruction)
    if opcode == "dynamic-update-slice":
        return _whole(*operands[1].outputs) * 2
    if opcode == "scatter":
        return _whole(*operands[-1].outputs) * 2 + _whole(*operands[1].outputs)
    outputs = instruction.outputs
    if opcode != base and len(outputs) > len(operands):  # operands, results, contexts
        outputs = outputs[len(operands) : 2 * len(operands)]
    if base in ("slice", "dynamic-slice", "gather"):
        return _whole(*outputs) * 2 + _whole(*(a for o in operands[1:] for a in o.outputs))
    return _whole(*outputs) + _whole(*(a for o in operands for a in o.outputs))


def _whole(*arrays: Array) -> Traffic:
    return Traffic(
        sum(array.bytes for array in arrays),
        sum(array.bytes for array in arrays if array.space == 0),
    )


def _fusion(module: Module, computation: Computation, instruction: Instruction) -> Traffic:
    """Parameters as far as they are read, and results as far as they are written."""
    body = module.computations[instruction.called[0]]
    total, users = Traffic(), _users(body)
    for parameter, operand in zip(body.parameters, computation.operands(instruction), strict=True):
        arrays = operand.outputs
        full = sum(array.bytes for array in arrays)
        share = min(1.0, _read(module, users, parameter) / full) if full else 0.0
        total += _whole(*arrays) * share
    for array, written in zip(instruction.outputs, _written(module, body, body.root), strict=False):
        total += _whole(array) * (min(1.0, written / array.bytes) if array.bytes else 0.0)
    return total


def _users(body: Computation) -> dict[str, list[Instruction]]:
    found: dict[str, list[Instruction]] = {}
    for inner in body.instructions.values():
        for name in dict.fromkeys(inner.operands):
            found.setdefault(name, []).append(inner)
    return found


def _read(module: Module, users: dict[str, list[Instruction]], value: Instruction) -> float:
    """Bytes of a value that the instructions of a fusion read: slices of it, or all."""
    if value.name not in users:
        return value.bytes  # the result itself
    total = 0.0
    for user in users[value.name]:
        first = user.operands[0] == value.name
        if user.opcode in ("slice", "dynamic-slice", "gather") and first:
            total += user.bytes
        elif user.opcode == "dynamic-update-slice" and first:
            continue  # updated in place
        elif user.opcode in _VIEWS:
            total += _read(module, users, user)
        elif user.opcode == "fusion":
            inner = module.computations[user.called[0]]
            parameter = inner.parameters[user.operands.index(value.name)]
            total += _read(module, _users(inner), parameter)
        else:
            return value.bytes
    return total


def _written(module: Module, body: Computation, root: Instruction) -> list[float]:
    """Bytes written of each result: of an update in place, the update."""
    if root.opcode == "tuple":
        return [size for part in body.operands(root) for size in _written(module, body, part)]
    if root.opcode == "dynamic-update-slice":
        return [body.operands(root)[1].bytes]
    if root.opcode in ("bitcast", "reshape"):
        return _written(module, body, body.operands(root)[0])
    if root.opcode == "fusion":
        inner = module.computations[root.called[0]]
        return _written(module, inner, inner.root)
    return [array.bytes for array in root.outputs]
