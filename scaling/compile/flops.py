"""FLOPs of one HLO instruction, a multiply-add counted as two."""

import math
import re

from scaling.compile.hlo import Computation, Instruction
from scaling.compile.kernels import kernel_flops

_WINDOW = re.compile(r"\bwindow=\{([^}]*)\}")
_LABELS = re.compile(r"dim_labels=([a-z0-9?]+)_([a-z0-9?]+)->([a-z0-9?]+)")


def product_flops(computation: Computation, instruction: Instruction) -> float:
    """FLOPs of a matrix product or convolution; of a kernel, see `kernels`; else 0."""
    if instruction.opcode == "dot":
        return _dot(computation, instruction)
    if instruction.opcode == "convolution":
        return _convolution(computation, instruction)
    if instruction.opcode == "custom-call":
        return kernel_flops(computation, instruction)
    return 0.0


def _dot(computation: Computation, instruction: Instruction) -> float:
    left = computation.operands(instruction)[0].outputs[0]
    contracted = instruction.attribute(r"lhs_contracting_dims=\{([0-9,]*)\}") or ""
    depth = math.prod(left.dims[int(d)] for d in contracted.split(",") if d)
    return 2.0 * instruction.outputs[0].size * depth


def _convolution(computation: Computation, instruction: Instruction) -> float:
    """TPU programs write every matrix product as a convolution, often with padded windows.

    A window position that falls into padding, or between the elements of a dilated input, is no
    multiply-add.
    """
    image, kernel = (operand.outputs[0] for operand in computation.operands(instruction)[:2])
    labels = _LABELS.search(instruction.attributes)
    image_labels, kernel_labels, out_labels = labels[1], labels[2], labels[3]
    out = instruction.outputs[0]
    features = out.dims[out_labels.index("f")] * kernel.dims[kernel_labels.index("i")]
    groups = int(instruction.attribute(r"batch_group_count=(\d+)") or 1)
    total = 2.0 * features * image.dims[image_labels.index("b")] / groups
    found = _WINDOW.search(instruction.attributes)
    window = dict(part.split("=") for part in found[1].split()) if found else {}
    for axis in range(len(out_labels) - 2):
        total *= _positions(
            base=image.dims[image_labels.index(str(axis))],
            size=kernel.dims[kernel_labels.index(str(axis))],
            out=out.dims[out_labels.index(str(axis))],
            low=int(_entry(window, "pad", axis, "0_0").split("_")[0]),
            stride=int(_entry(window, "stride", axis, "1")),
            base_dilation=int(_entry(window, "lhs_dilate", axis, "1")),
            window_dilation=int(_entry(window, "rhs_dilate", axis, "1")),
        )
    return total


def _entry(window: dict[str, str], key: str, axis: int, default: str) -> str:
    return window[key].split("x")[axis] if key in window else default


def _positions(base, size, out, low, stride, base_dilation, window_dilation) -> int:
    """Pairs of (output position, window position) that meet an element of the input."""
    if low == 0 and stride == base_dilation == window_dilation == 1 and out + size - 1 == base:
        return out * size
    end = (base - 1) * base_dilation
    count = 0
    for k in range(size):
        first = k * window_dilation - low
        if base_dilation == 1:
            # Output positions o with 0 <= o * stride + first <= end.
            lowest = max(0, -(first // stride))
            highest = min(out - 1, (end - first) // stride)
            count += max(0, highest - lowest + 1)
        else:
            at = (o * stride + first for o in range(out))
            count += sum(0 <= p <= end and p % base_dilation == 0 for p in at)
    return count
