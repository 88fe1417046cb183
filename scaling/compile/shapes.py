"""Shapes as HLO writes them: element type, dimensions, and the memory an array lies in."""

import functools
import math
import re
from dataclasses import dataclass

_BYTES = {"pred": 1, "token": 0, "opaque": 0} | {f"c{2 * b}": b // 4 for b in (32, 64)}
_BITS = re.compile(r"[a-z]+(\d+)")  # of f32, bf16, s8, u4, f8e4m3fn ...
_ARRAY = re.compile(r"\b([a-z][a-z0-9]*)\[([0-9,<= ]*)\](\{[^}]*\})?")
_SPACE = re.compile(r"S\((\d+)\)")


@dataclass(frozen=True, slots=True)
class Array:
    """One array: element type, dimensions, and the memory it lies in (0 is the main one)."""

    dtype: str
    dims: tuple[int, ...]
    space: int = 0

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.dims)

    @property
    def bytes(self) -> float:
        """Without padding; 4-bit types are half a byte."""
        return self.size * element_bytes(self.dtype)


@functools.cache
def element_bytes(dtype: str) -> float:
    """Bytes of one element of an HLO type such as bf16."""
    if dtype in _BYTES:
        return _BYTES[dtype]
    bits = _BITS.match(dtype)
    return int(bits[1]) / 8 if bits else 0.0


def arrays(shape: str) -> list[Array]:
    """The arrays in a shape as HLO writes it; a tuple is flattened."""
    found = []
    for dtype, dims, layout in _ARRAY.findall(shape):
        space = _SPACE.search(layout) if "S" in layout else None
        sizes = tuple(int(d.strip("<= ")) for d in dims.split(",") if d.strip())
        found.append(Array(dtype, sizes, int(space[1]) if space else 0))
    return found
