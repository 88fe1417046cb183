"""HLO text, as the compiler prints it, as computations of instructions. Knows no costs."""

import re
from dataclasses import dataclass, field

from scaling.compile.shapes import Array, arrays

_COMMENT = re.compile(r"/\*.*?\*/")
_HEADER = re.compile(r"^(ENTRY )?%?([^\s,(){}]+) \(.*\{$")
_KERNEL = re.compile(r'"body":"[^"]*"')  # of a Pallas call: long, and says nothing here
_CALLED = re.compile(
    r"\b(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([^\s,(){}]+)"
)
_OP_NAME = re.compile(r'op_name="([^"]*)"')


@dataclass(slots=True)
class Instruction:
    """One line: its result's shape, what it does, to what, and the rest of the line."""

    name: str
    opcode: str
    shape: str
    operands: tuple[str, ...]
    text: str  # what stands in the parentheses of a constant or a parameter
    attributes: str

    @property
    def outputs(self) -> list[Array]:
        return arrays(self.shape)

    @property
    def bytes(self) -> float:
        """Of the result."""
        return sum(array.bytes for array in self.outputs)

    def attribute(self, pattern: str) -> str | None:
        """The first group of a pattern in the attributes."""
        found = re.search(pattern, self.attributes)
        return found[1] if found else None

    @property
    def called(self) -> list[str]:
        """Names of the computations it calls; a conditional's branches in order."""
        branches = self.attribute(r"branch_computations=\{([^}]*)\}")
        if branches:
            return [name.strip(" %") for name in branches.split(",")]
        return _CALLED.findall(self.attributes)

    @property
    def op_name(self) -> str:
        """Where in the program it comes from; may be empty."""
        found = _OP_NAME.search(self.attributes)
        return found[1] if found else ""


@dataclass(slots=True)
class Computation:
    """Instructions by name, in order; `root` is the result."""

    name: str
    instructions: dict[str, Instruction] = field(default_factory=dict)
    root: Instruction | None = None

    def operands(self, instruction: Instruction) -> list[Instruction]:
        """The instructions whose results it reads."""
        return [self.instructions[name] for name in instruction.operands]

    @property
    def parameters(self) -> list[Instruction]:
        """By their number."""
        found = [i for i in self.instructions.values() if i.opcode == "parameter"]
        return sorted(found, key=lambda i: int(i.text))


@dataclass(slots=True)
class Module:
    """A program."""

    computations: dict[str, Computation]
    entry: Computation


def parse(text: str) -> Module:
    """Reads a module's text.

    Raises:
      ValueError: there is no entry computation.
    """
    computations, entry, current, pending = {}, None, None, []
    for line in text.splitlines():
        if current is None:
            header = _HEADER.match(line)
            if header:
                current = Computation(header[2])
                computations[current.name] = current
                entry = current if header[1] else entry
        elif line.startswith(" ") or line == "}":
            if pending:
                _add(current, "".join(pending))
            pending = [line]
            if line == "}":
                _spell_out_elements(current)
                current, pending = None, []
        else:  # an attribute may have line breaks
            pending.append(line)
    if entry is None:
        raise ValueError("the HLO text has no ENTRY computation")
    return Module(computations, entry)


def _add(computation: Computation, line: str) -> None:
    line = line.strip()
    is_root = line.startswith("ROOT ")
    name, equals, rest = line.removeprefix("ROOT ").partition(" = ")
    if not equals:
        return
    if "/*" in rest:
        rest = _COMMENT.sub("", rest)
    if '"body":"' in rest:
        rest = _KERNEL.sub("", rest)
    cut = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    shape, rest = rest[:cut], rest[cut:].lstrip()
    start = rest.index("(")
    end = _closing(rest, start)
    inside = rest[start + 1 : end]
    opcode = rest[:start]
    literal = opcode in ("constant", "parameter", "iota")
    operands = () if literal else tuple(_operand_names(inside))
    instruction = Instruction(
        name.lstrip("%"), opcode, shape, operands, inside if literal else "", rest[end + 1 :]
    )
    computation.instructions[instruction.name] = instruction
    if is_root:
        computation.root = instruction


def _spell_out_elements(computation: Computation) -> None:
    """Newer text writes the element 4 of a tuple as %name#4, without an instruction of its own."""
    for instruction in list(computation.instructions.values()):
        for name in instruction.operands:
            _spell_out(computation, name)


def _spell_out(computation: Computation, name: str) -> None:
    whole, sign, index = name.rpartition("#")
    if not sign or name in computation.instructions:
        return
    _spell_out(computation, whole)
    shape = _split(computation.instructions[whole].shape[1:-1])[int(index)].strip()
    computation.instructions[name] = Instruction(
        name, "get-tuple-element", shape, (whole,), "", f", index={index}"
    )


def _operand_names(inside: str) -> list[str]:
    """Names in an operand list, each with or without its shape and the % sign."""
    parts = _split(inside) if "[" in inside else inside.split(",")
    return [part.split()[-1].lstrip("%") for part in parts if part.strip()]


def _split(text: str) -> list[str]:
    """The parts between the commas that are in no brackets."""
    parts, depth, start = [], 0, 0
    for found in re.finditer(r"[()\[\]{},]", text):
        if found[0] == ",":
            if depth == 0:
                parts.append(text[start : found.start()])
                start = found.end()
        else:
            depth += 1 if found[0] in "([{" else -1
    return [*parts, text[start:]]


def _closing(text: str, start: int) -> int:
    """Where the parenthesis that opens at `start` closes."""
    depth = 0
    for found in re.finditer(r"[()]", text[start:]):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return start + found.start()
    raise ValueError(f"unbalanced parentheses in HLO: {text[:80]}")
