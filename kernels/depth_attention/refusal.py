"""An operation that no platform has: it says so when a program that contains it is lowered."""

import jax
from jax.extend.core import Primitive
from jax.interpreters import mlir

from kernels.depth_attention.varying import varying_like


def refuse(args, outs, name, platform):
    """Stands for a kernel that gives `outs`, wherever it cannot be.

    Args:
      args, outs: of the kernel: arrays, and the shapes of its results.
      name: of the implementation.
      platform: the only one that it is lowered for.

    Raises:
      ValueError: once this is lowered; tracing, and a branch that is dropped, say nothing.
    """
    avals = tuple(jax.core.ShapedArray(x.shape, x.dtype) for x in outs)
    results = refused_p.bind(*args, outs=avals, name=name, platform=platform)
    # Both branches must have one type, and a kernel's results vary over devices as its sources do.
    return [varying_like(args[0], x) for x in results]


def _lower_refused(context, *args, outs, name, platform):
    given = ", ".join(context.module_context.platforms)
    raise ValueError(
        f"depth_attention: {name} exists on {platform} only, and this is compiled for {given}; "
        "implementation 'auto' takes what the platform has, 'xla' runs everywhere."
    )


refused_p = Primitive("depth_attention_refused")
refused_p.multiple_results = True
refused_p.def_abstract_eval(lambda *args, outs, **_: outs)
mlir.register_lowering(refused_p, _lower_refused)
