"""The kernels' part of `make bench`: bytes moved over the minimum, and speed on CPU."""

import contextlib
import os
import time
from collections.abc import Callable
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np

from kernels.depth_attention.scored import mix, score
from kernels.depth_attention.shapes import SHAPES, Shape
from kernels.depth_attention.traffic import ratios

EPS = 1e-6
ROUNDS = 25
COUNTED = {
    "pallas_tpu": "pallas_tpu",
    "pallas_gpu": "pallas_gpu",
    "xla": "xla on CPU",
    "mix": "scored mix on CPU",
}


def rows(console, take_turns: Callable) -> list[dict]:
    """Rows of the benchmark's table, the worst shape of each; all shapes under `details`.

    Args:
      console: has `print`.
      take_turns: (functions by name that return seconds, rounds) -> lists of seconds by name.
    """
    return [*_traffic(console), *_speed(console, take_turns)]


def _traffic(console) -> list[dict]:
    rows = []
    for implementation, label in COUNTED.items():
        console.print(f"counting the bytes of {label} at {len(SHAPES)} shapes ...")
        moved = {name: ratios(implementation, shape) for name, shape in SHAPES.items()}
        for i, (what, target) in enumerate((("forward", "<= 1.1"), ("fwd+bwd", "<= 1.25"))):
            details = {name: pair[i] for name, pair in moved.items()}
            worst = max(details, key=details.get)
            rows.append(
                {
                    "measure": f"bytes / minimum, {label}, {what}; worst: {worst}",
                    "value": details[worst],
                    "target": target,
                    "floor": "1.000",
                    "details": details,
                }
            )
    return rows


def _speed(console, take_turns) -> list[dict]:
    """How many times faster a read of n sources is than by others, forward and backward."""
    seconds = {}
    for name, shape in SHAPES.items():
        if name.startswith("cpu_"):
            console.print(f"reading {shape.n} sources of {name} ...")
            seconds[name] = take_turns(_readers(shape), ROUNDS)
    rows = []
    for other, label, target in (
        ("naive", "naive stacked form / score and mix", ">= 1.8"),
        ("torch", "PyTorch eager / score and mix", "> 1"),
    ):
        row = {"measure": f"time {label}", "value": None, "target": target, "floor": ""}
        if all(other in by_reader for by_reader in seconds.values()):
            details = {
                name: {
                    "value": median(by_reader[other]) / median(by_reader["ours"]),
                    "seconds": median(by_reader["ours"]),
                    "quartiles": np.quantile(by_reader["ours"], [0.25, 0.75]).tolist(),
                    f"quartiles_{other}": np.quantile(by_reader[other], [0.25, 0.75]).tolist(),
                }
                for name, by_reader in seconds.items()
            }
            worst = min(details, key=lambda name: details[name]["value"])
            row["measure"] += f"; worst: {worst}"
            row |= {"value": details[worst]["value"], "details": details}
        else:
            row["measure"] = (
                "PyTorch eager: torch not installed: pip install 'residual-scaling-laws[bench]'"
            )
        rows.append(row)
    return rows


def _readers(shape: Shape) -> dict[str, Callable[[], float]]:
    """By name, functions that read once, forward and backward, and return the seconds it took."""
    rng = np.random.default_rng(0)
    tokens = shape.tokens, shape.d_model
    values = [rng.normal(size=tokens).astype(shape.dtype) for _ in range(shape.n)]
    query, gain = (rng.normal(size=shape.d_model).astype("float32") for _ in range(2))
    d_out = rng.normal(size=tokens).astype(shape.dtype)
    arrays = values, query / np.float32(shape.d_model**0.5), gain, d_out
    readers = {"ours": _in_jax(_ours, *arrays), "naive": _in_jax(_naive, *arrays)}
    with contextlib.suppress(ModuleNotFoundError):
        readers["torch"] = _in_torch(*arrays)
    return {name: _timed(read) for name, read in readers.items()}


def _ours(values, query, gain):
    """As the models read on CPU; one that scores a source for many reads at once gains more."""
    return mix(values, [score(v, (query * gain)[None], eps=EPS)[0] for v in values])


def _naive(values, query_D, gain_D):
    """The paper's listing (Fig. 2), for autodiff."""
    v_nND = jnp.stack(values)
    rstd = jax.lax.rsqrt(jnp.mean(v_nND * v_nND, axis=-1, keepdims=True) + EPS)
    logits_nN = jnp.einsum("d,ntd->nt", query_D, v_nND * rstd * gain_D[None, None])
    return jnp.einsum("nt,ntd->td", jax.nn.softmax(logits_nN, axis=0), v_nND)


def _in_jax(read, values, query, gain, d_out) -> Callable[[], None]:
    @jax.jit
    def forward_backward(values, query, gain, d_out):
        out, vjp = jax.vjp(read, values, query, gain)
        return out, vjp(d_out)

    arrays = jax.tree.map(jnp.asarray, (values, query, gain, d_out))
    return lambda: jax.block_until_ready(forward_backward(*arrays))


def _in_torch(values, query, gain, d_out) -> Callable[[], None]:
    """`_naive` in PyTorch eager, with autograd."""
    import torch  # not at the top: only who asks for the extra `bench` has it

    torch.set_num_threads(os.cpu_count())
    values, query, gain, d_out = jax.tree.map(torch.tensor, (values, query, gain, d_out))
    inputs = [x.requires_grad_() for x in (*values, query, gain)]

    def forward_backward():
        v_nND = torch.stack(values)
        keys = v_nND * torch.rsqrt(v_nND.square().mean(-1, keepdim=True) + EPS) * gain
        logits_nN = torch.einsum("d,ntd->nt", query, keys)
        out = torch.einsum("nt,ntd->td", logits_nN.softmax(0), v_nND)
        return out, torch.autograd.grad(out, inputs, d_out)

    return forward_backward


def _timed(read: Callable[[], None]) -> Callable[[], float]:
    def timed() -> float:
        read()  # pays for the caches, and the idling threads, that another reader left behind
        start = time.perf_counter()
        read()
        return time.perf_counter() - start

    return timed
