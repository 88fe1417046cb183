"""Named sizes of real models, shared by tests and benchmark.

Of a Block model: the last phase one, in which the S sublayers of a block read every finished source
(the embedding and all blocks before). Of a Full model: the last sublayer's read, with one source a
sublayer (the embedding and all outputs before).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Shape(NamedTuple):
    """One call: S reads of n sources [tokens, d_model]."""

    n: int
    S: int
    tokens: int  # of one device
    d_model: int
    dtype: str

    @property
    def itemsize(self) -> int:
        """Bytes of an element of a source."""
        return jnp.dtype(self.dtype).itemsize

    def structs(self) -> tuple:
        """Abstract values [n of tokens D], queries [S D], and cotangents of out and lse."""
        f32, (n, S, N, D, dtype) = jnp.float32, self
        values = [jax.ShapeDtypeStruct((N, D), dtype)] * n
        d_out, d_lse = jax.ShapeDtypeStruct((S, N, D), dtype), jax.ShapeDtypeStruct((S, N), f32)
        return values, jax.ShapeDtypeStruct((S, D), f32), (d_out, d_lse)


# arXiv 2603.15031, Table 2: transformer layers L_b (two sublayers each) and d_model by active size.
_TABLE_2 = {
    "194m": (12, 896),
    "241m": (13, 960),
    "296m": (14, 1024),
    "436m": (16, 1168),
    "528m": (17, 1264),
}
_CPU_WIDTHS = (32, 48, 64, 88, 120)  # configs/ladders/cpu.yaml, all of eight layers


def _both(name: str, layers: int, *rest) -> dict[str, Shape]:
    """Block and Full, with eight blocks (section 5.1), of which the longest is taken."""
    sublayers = 2 * layers
    return {
        f"{name}_block": Shape(8, -(-sublayers // 8), *rest),
        f"{name}_full": Shape(sublayers, 1, *rest),
    }


SHAPES: dict[str, Shape] = {}
for _name, (_layers, _d_model) in _TABLE_2.items():
    # One sequence of Table 2's context, 8192 tokens.
    SHAPES |= _both(f"table2_{_name}", _layers, 8192, _d_model, "bfloat16")
# Kimi Linear 48B: 54 sublayers in nine blocks of six, context 4096 (section 5.2); a read has ten
# sources with the partial sum, nine of them finished. d_model is not in the paper: Kimi Linear's.
SHAPES["kimi_48b"] = Shape(9, 6, 4096, 2304, "bfloat16")
# Kimi K3 (arXiv 2607.24653): 93 layers of width 7168, blocks of 12 layers, the last one of 9, which
# finds 8 sources. The number of tokens is ours.
SHAPES["kimi_k3"] = Shape(8, 18, 4096, 7168, "bfloat16")
for _d_model in _CPU_WIDTHS:
    # configs/cpu.yaml: batches of 16 x 256 tokens.
    SHAPES |= _both(f"cpu_d{_d_model}", 8, 16 * 256, _d_model, "float32")
