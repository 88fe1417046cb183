"""How often a loop's body runs: as the compiler noted it, else from the loop's own counter."""

import operator
import re
from collections.abc import Callable

from scaling.compile.hlo import Computation, Instruction, Module

# What is known of a value: a number, a tuple of such, or nothing.
Known = float | tuple | None
_NOTED = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_SAME = {"copy", "convert", "bitcast", "reshape", "copy-start", "copy-done", "broadcast"}
_OPERATIONS: dict[str, Callable] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "and": lambda a, b: int(a) & int(b),
    "minimum": min,
    "maximum": max,
}
_COMPARISONS = {
    "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge, "EQ": operator.eq,
    "NE": operator.ne,
}  # fmt: skip
_FOREVER = 2**40


def loop_parts(module: Module, loop: Instruction) -> tuple[Computation, Computation]:
    """(condition, body) of a while loop."""
    condition = loop.attribute(r"\bcondition=%?([^\s,(){}]+)")
    body = loop.attribute(r"\bbody=%?([^\s,(){}]+)")
    return module.computations[condition], module.computations[body]


def trip_count(
    module: Module, computation: Computation, loop: Instruction, known: Known
) -> tuple[int | None, Known]:
    """(runs of a while loop's body, what is known of the body's parameter in every run).

    `known` is what is known of the parameter of the computation in which the loop stands. The count
    is None where it cannot be read off, as for a loop that waits for a value.
    """
    condition, body = loop_parts(module, loop)
    start = value(module, computation, loop.operands[0], known)
    start = start if isinstance(start, tuple) else ()
    lasting = tuple(x if _passed_on(body, i) else None for i, x in enumerate(start))
    noted = _NOTED.search(loop.attributes)
    if noted:
        return int(noted[1]), lasting
    return _count(module, condition, body, start, lasting), lasting


def _count(module, condition, body, start: tuple, lasting: tuple) -> int | None:
    counters = [
        i for i in sorted(_read_indices(condition)) if i < len(start) and lasting[i] is None
    ]
    if len(counters) != 1 or start[counters[0]] is None or body.root.opcode != "tuple":
        return None
    at, first = counters[0], start[counters[0]]

    def with_counter(x: float) -> tuple:
        return (*lasting[:at], x, *lasting[at + 1 :])

    second = value(module, body, body.root.operands[at], with_counter(first))
    if second is None:
        return None

    def runs(times: int) -> bool | None:
        """Whether the body runs again after it has run so many times."""
        counter = first + times * (second - first)
        return value(module, condition, condition.root.name, with_counter(counter))

    if not runs(0):
        return None if runs(0) is None else 0
    high = 1
    while runs(high):
        high *= 2
        if high > _FOREVER:
            return None
    low = high // 2  # the body runs after `low` runs, and not after `high`
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if runs(middle) else (low, middle)
    return high


def _read_indices(computation: Computation) -> set[int]:
    return {
        int(i.attribute(r"index=(\d+)"))
        for i in computation.instructions.values()
        if i.opcode == "get-tuple-element"
        and computation.instructions[i.operands[0]].opcode == "parameter"
    }


def _passed_on(body: Computation, index: int) -> bool:
    """Whether a loop hands an element of its tuple to the next run as it is."""
    if body.root.opcode != "tuple":
        return False
    source = body.instructions[body.root.operands[index]]
    while source.opcode == "copy":
        source = body.instructions[source.operands[0]]
    return (
        source.opcode == "get-tuple-element"
        and int(source.attribute(r"index=(\d+)")) == index
        and body.instructions[source.operands[0]].opcode == "parameter"
    )


def value(module: Module, at: Computation, name: str, known: Known) -> Known:
    """What an instruction yields, as far as constants and `known` tell.

    `known` is the value of the computation's parameter, or, for a fusion, a list of them.
    """
    return _Values(module, at, known).of(name)


class _Values:
    """Values in one computation, each found once: they form a graph, not a tree."""

    def __init__(self, module: Module, at: Computation, known: Known):
        self.module, self.at, self.known, self.found = module, at, known, {}

    def of(self, name: str) -> Known:
        if name not in self.found:
            instruction = self.at.instructions[name]
            # Counters are numbers, or elements of tuples; what is an array is not worth a look.
            is_array = not instruction.shape.startswith("(") and "[]" not in instruction.shape
            self.found[name] = None if is_array else self._compute(instruction)
        return self.found[name]

    def _compute(self, instruction: Instruction) -> Known:
        opcode, operands = instruction.opcode, instruction.operands
        if opcode == "constant":
            return _number(instruction.text)
        if opcode == "parameter":
            known = self.known
            return known[int(instruction.text)] if isinstance(known, list) else known
        if opcode == "tuple":
            return tuple(self.of(name) for name in operands)
        if opcode == "get-tuple-element":
            whole, index = self.of(operands[0]), int(instruction.attribute(r"index=(\d+)"))
            return whole[index] if isinstance(whole, tuple) and index < len(whole) else None
        if opcode in _SAME:
            return self.of(operands[0])
        if opcode in _OPERATIONS or opcode == "compare":
            a, b = self.of(operands[0]), self.of(operands[1])
            if not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
                return None
            if opcode == "compare":
                return _COMPARISONS[instruction.attribute(r"direction=(\w+)")](a, b)
            return _OPERATIONS[opcode](a, b)
        if opcode in ("fusion", "call"):
            inner = self.module.computations[instruction.called[0]]
            arguments = [self.of(name) for name in operands]
            return _Values(self.module, inner, arguments).of(inner.root.name)
        return None


def _number(text: str) -> float | None:
    if text in ("true", "false"):
        return int(text == "true")
    try:
        return int(text)
    except ValueError:
        return None
