"""Bytes that depth attention moves to and from memory: the least possible, and what is moved.

Everything here is counted without running anything: Pallas calls from their grids and BlockSpecs,
other programs from XLA's cost analysis. Sizes are those of the arrays, without a layout's padding.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun, jaxprs_in_params

from kernels.depth_attention.api import depth_attention
from kernels.depth_attention.pallas import total_bytes
from kernels.depth_attention.scored import mix
from kernels.depth_attention.shapes import Shape

_VIEWS = {"reshape", "squeeze", "expand_dims"}  # of a row-major array: no byte moves


def ratios(implementation: str, shape: Shape) -> tuple[float, float]:
    """Bytes moved over the minimum: of forward, and of forward and backward.

    Args:
      implementation: of `depth_attention`, or "mix": one read whose logits are known, as they are
        where sources are scored when they are written.
    """
    values, queries, cotangents = shape.structs()
    if implementation == "mix":
        shape, read, cotangents = shape._replace(S=1), mix, values[0]
        args = values, [jax.ShapeDtypeStruct((shape.tokens,), jnp.float32)] * shape.n
    else:
        args = values, queries

        def read(values, queries):
            gain = jnp.ones_like(queries)
            return depth_attention(values, queries, gain, implementation=implementation)

    def forward_backward(cotangents, *args):
        results, vjp = jax.vjp(read, *args)
        return results, vjp(cotangents)

    count = pallas_bytes if implementation.startswith("pallas") else xla_bytes
    both = count(forward_backward, cotangents, *args) / minimum_bytes(shape, backward=True)
    return count(read, *args) / minimum_bytes(shape), both


def minimum_bytes(shape: Shape, *, backward: bool = False) -> int:
    """The physical minimum, in bytes.

    Forward reads n sources and writes S outputs. With `backward`, the sources are read again with S
    cotangents, and n gradients written. Left out is what is small: the queries and their gradients,
    and the fp32 scalars of a token (lse, saved scores).
    """
    arrays = shape.n + shape.S
    if backward:
        arrays += 2 * shape.n + shape.S
    return arrays * shape.tokens * shape.d_model * shape.itemsize


def xla_bytes(fn: Callable, *args) -> int:
    """Bytes that `fn(*args)`, compiled for CPU, accesses by XLA's analysis of its fused loops.

    Args:
      args: arrays or `jax.ShapeDtypeStruct`s.
    """
    with jax.default_device(jax.devices("cpu")[0]):
        compiled = jax.jit(fn).lower(*args).compile()
    return int(compiled.cost_analysis()["bytes accessed"])


def pallas_bytes(fn: Callable, *args) -> int:
    """Bytes that the Pallas calls in `fn(*args)` and the XLA operations around them move.

    A block is transferred each time its index differs from that of the grid step before. An operand
    that is one block, as are all in the GPU kernels, whose programs take their own part of it, is
    counted once: what they visit again, once for each group of queries, is taken to come from
    cache. Around the kernels, every operation is taken to read its operands and to write its
    results, as if XLA fused nothing.

    Args:
      fn: free of loops outside its kernels; of `cond`, the branch with most kernels is counted.
      args: arrays or `jax.ShapeDtypeStruct`s; nothing is run, nor compiled for a device.

    Raises:
      ValueError: there is no Pallas call.
    """
    jaxpr = jax.make_jaxpr(fn)(*args).jaxpr
    if not _count_kernels(jaxpr):
        raise ValueError("pallas_bytes: the function has no pallas_call; use xla_bytes.")
    return _jaxpr_bytes(jaxpr)


def _jaxpr_bytes(jaxpr) -> int:
    return sum(_equation_bytes(equation) for equation in jaxpr.eqns)


def _equation_bytes(equation) -> int:
    name = equation.primitive.name
    if name == "pallas_call":
        mapping = equation.params["grid_mapping"]
        return sum(_operand_bytes(block, mapping.grid) for block in mapping.block_mappings)
    inner = _inner(equation)
    if name == "cond":  # one branch a platform, of which all but the kernel's refuse
        inner = [max(inner, key=_count_kernels)]
    if inner:
        return sum(map(_jaxpr_bytes, inner))
    results = total_bytes(*(x.aval for x in equation.outvars))
    operands = total_bytes(*(x.aval for x in equation.invars))
    if name in _VIEWS or (name == "broadcast_in_dim" and operands == results):
        return 0
    if name == "slice":
        operands = results
    return operands + results


def _operand_bytes(block, grid) -> int:
    """Bytes of all transfers of one operand, in the order of the grid."""
    array = block.array_aval
    # A squeezed dimension has blocks of one.
    sizes = np.array([getattr(size, "block_size", 1) for size in block.block_shape])
    steps = _block_indices(block.index_map_jaxpr, grid)
    moves = np.ones(len(steps), bool)
    moves[1:] = (steps[1:] != steps[:-1]).any(axis=1)
    # The last block along a dimension may overhang.
    extents = np.minimum(sizes, array.shape - steps[moves] * sizes)
    return int(extents.prod(axis=1).sum()) * array.dtype.itemsize


def _block_indices(index_map, grid) -> np.ndarray:
    """[steps, dimensions] of an index map, in the order of the grid; just one step if constant."""
    used = {id(x) for equation in index_map.jaxpr.eqns for x in equation.invars}
    used |= {id(x) for x in index_map.jaxpr.outvars}
    if not used & {id(x) for x in index_map.jaxpr.invars}:
        grid = (1,) * len(grid)
    steps = np.indices(grid, np.int32).reshape(len(grid), -1)
    dimensions = jax.vmap(jaxpr_as_fun(index_map), axis_size=steps.shape[1])(*steps)
    return np.stack([np.asarray(x, np.int64) for x in dimensions], axis=1)


def _count_kernels(jaxpr) -> int:
    return sum(
        1 if e.primitive.name == "pallas_call" else sum(map(_count_kernels, _inner(e)))
        for e in jaxpr.eqns
    )


def _inner(equation) -> list:
    """The jaxprs that an equation calls."""
    return [getattr(j, "jaxpr", j) for j in jaxprs_in_params(equation.params)]
