"""What Pallas kernels cost: what they declare, or for JAX's own attention, what they must do."""

import json
import math
import re

from scaling.compile.hlo import Computation, Instruction

_TARGET = 'custom_call_target="tpu_custom_call"'
_COST = re.compile(r'"cost_estimate":(\{[^}]*\})')
# Matrix products over (query, key) pairs: s, o; backward s, dp, dv, dk, dq, together or in two.
_ATTENTION = {r"splash_\w*fwd": 2, r"splash_\w*dkv": 5, r"splash_\w*dq": 3}


def is_kernel(instruction: Instruction) -> bool:
    """Whether it is a Pallas call on a TPU."""
    return instruction.opcode == "custom-call" and _TARGET in instruction.attributes


def declared(instruction: Instruction) -> dict[str, float]:
    """The cost estimate that a kernel carries (flops, bytes_accessed, ...); may be empty."""
    found = _COST.search(instruction.attributes)
    return {key: float(value) for key, value in json.loads(found[1]).items()} if found else {}


def kernel_flops(computation: Computation, instruction: Instruction) -> float:
    """FLOPs that a kernel declares; of causal splash attention, which declares none, all it needs.

    That kernel takes whole blocks of pairs, and so does a little more than is counted here.
    """
    given = declared(instruction)
    if "flops" in given:
        return given["flops"]
    for pattern, products in _ATTENTION.items():
        if re.match(pattern, instruction.name):
            inputs = (a for operand in computation.operands(instruction) for a in operand.outputs)
            queries = [a for a in inputs if len(a.dims) >= 3 and a.dtype[0] in "bf"]
            *heads, positions, width = queries[0].dims
            pairs = positions * (positions + 1) / 2
            return products * 2.0 * math.prod(heads) * pairs * width
    return 0.0
