"""What both Pallas kernels share: tokens of any leading shape, sharded or not."""

import math
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import jax
from jax.sharding import NamedSharding

from kernels.depth_attention.base import Forward, Scores
from kernels.depth_attention.device_local import device_local
from kernels.depth_attention.refusal import refuse


@dataclass(frozen=True)
class Pallas:
    """The contract of `base.py` for tokens of any leading shape, by a kernel for flat tokens."""

    kernel: ModuleType
    platform: str  # the only one that it is lowered for
    interpret: Any = False  # True, or pltpu.InterpretParams: run on CPU, for tests
    sharding: NamedSharding | None = None  # of the token dimensions

    def unsupported(self, values, queries) -> str | None:
        """Why the kernel cannot take these, if so."""
        *tokens, D = values[0].shape
        flat = jax.ShapeDtypeStruct((math.prod(tokens), D), values[0].dtype)
        return self.kernel.unsupported([flat] * len(values), queries)

    def forward(
        self, values, queries, *, eps, norm_gain=None, save_scores=False, stacked=True
    ) -> Forward:
        """See `base.py`."""
        n, has_norm, S = len(values), norm_gain is not None, len(queries)
        reads = ["std"] if stacked else ["td"] * S

        def flat(args):
            out, lse, normed, scores = self.kernel.forward(
                args[:n],
                args[n],
                eps=eps,
                norm_gain=args[n + 1] if has_norm else None,
                save_scores=save_scores,
                stacked=stacked,
                interpret=self.interpret,
            )
            return jax.tree.leaves((out, lse, normed, scores))

        results = self.run(
            flat,
            [*values, queries, *([norm_gain] if has_norm else [])],
            ["td"] * n + ["sd"] * (1 + has_norm),
            [*reads, "st"] + reads * has_norm + ["nt", "nst"] * save_scores,
        )
        read = 0 if stacked else (0,) * S
        like = Forward(read, 0, read if has_norm else None, Scores(0, 0) if save_scores else None)
        return jax.tree.unflatten(jax.tree.structure(like), results)

    def backward(self, values, queries, out, lse, scores, d_out, d_lse, *, eps):
        """See `base.py`."""
        n, S, stacked = len(values), len(queries), not isinstance(d_out, tuple)
        reads = ["std"] if stacked else ["td"] * S
        rest, structure = jax.tree.flatten((queries, out, lse, d_out, d_lse, scores))

        def flat(args):
            values, rest = args[:n], jax.tree.unflatten(structure, args[n:])
            queries, out, lse, d_out, d_lse, scores = rest
            d_values, d_queries = self.kernel.backward(
                values, queries, out, lse, scores, d_out, d_lse, eps=eps, interpret=self.interpret
            )
            return [*d_values, d_queries]

        *d_values, d_queries = self.run(
            flat,
            [*values, *rest],
            ["td"] * n + ["sd", *reads, "st", *reads, "st"] + ["nt", "nst"] * (scores is not None),
            ["td"] * n + ["sd"],
        )
        return tuple(d_values), d_queries

    def run(self, flat, args, arg_labels, out_labels):
        """`device_local` with this sharding, refused when lowered for another platform.

        Raises:
          ValueError: the program is compiled for a platform without this kernel.
        """

        def run(args):
            return device_local(flat, args, arg_labels, out_labels, self.sharding)

        if self.interpret:
            return run(args)
        outs = jax.eval_shape(run, args)
        name = self.kernel.__name__.rsplit(".", 1)[-1]
        refused = partial(refuse, outs=outs, name=name, platform=self.platform)
        branches = {self.platform: run, "default": refused}
        return jax.lax.platform_dependent(args, **branches)


def total_bytes(*arrays) -> int:
    """Of all arrays in these trees."""
    return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(arrays))
