"""Checks on eight devices, run by test_sharding.py in a process of its own; prints JSON."""

import json
import re
import traceback
from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from suite import Case, Result, assert_close, attend, forward_backward, make_case

from kernels import depth_attention, merge_one, mix, score
from kernels.depth_attention.implementations import BACKENDS

IMPLEMENTATIONS = ("xla", "pallas_tpu", "pallas_gpu")
N, D = 3, 24
# Token and d_model axes of the sources; a dimension over two axes at once is one of them.
SPECS = {"batch_and_sequence": P("data", "seq"), "batch_over_two_axes": P(("data", "model"), None)}
MOVES = "all-gather|all-to-all|collective-permute"  # of whole arrays between devices
CHECKS = {}


def check(function, *arguments):
    CHECKS["-".join([function.__name__, *arguments])] = partial(function, *arguments)


def mesh():
    return Mesh(np.array(jax.devices()).reshape(2, 2, 2), ("data", "seq", "model"))


def case() -> Case:
    return make_case(N, 2, (4, 6), D, seed=1)


@cache
def unsharded(implementation) -> Result:
    return jax.jit(partial(forward_backward, attend(implementation)))(case())


def assert_same(result: Result, implementation):
    """Every token's own numbers, and sums over tokens that may be added in another order."""
    for got, wanted in zip(*map(jax.tree.leaves, (result, unsharded(implementation))), strict=True):
        assert_close(got, np.float64(wanted), 1e-6)


def placed(case: Case, tokens: P) -> Case:
    """Sources and cotangents sharded as `tokens` says, parameters replicated."""
    d_out, d_lse, d_normed = (
        NamedSharding(mesh(), P(None, *s)) for s in (tokens, tokens[:2], tokens)
    )
    everywhere = NamedSharding(mesh(), P())
    shardings = Case(
        (NamedSharding(mesh(), tokens),) * N, *[everywhere] * 3, (d_out, d_lse, d_normed)
    )
    return jax.device_put(case, shardings)


def jit_with_sharding(implementation, spec):
    """Under jit, XLA partitions its own form and `sharding` the kernels; no source is gathered."""
    sharding = NamedSharding(mesh(), SPECS[spec])
    function = attend(implementation, save_scores=True, sharding=sharding)
    sharded = placed(case(), SPECS[spec])
    compiled = jax.jit(partial(forward_backward, function)).lower(sharded).compile()
    result = compiled(sharded)
    assert_same(result, implementation)
    for value, gradient in zip(sharded.values, result.gradients[0], strict=True):
        assert gradient.sharding.is_equivalent_to(value.sharding, value.ndim)
    assert "all-reduce" in compiled.as_text()
    assert not re.search(MOVES, compiled.as_text())


def in_shard_map(implementation):
    """Interpreted kernels mix what varies over devices with what does not, hence no check there."""
    tokens = SPECS["batch_and_sequence"]
    function = jax.shard_map(
        attend(implementation),
        mesh=mesh(),
        in_specs=((tokens,) * N, P(), P(), P()),
        out_specs=(P(None, *tokens),) * 3,
        check_vma=implementation == "xla",
    )
    result = jax.jit(partial(forward_backward, function))(placed(case(), tokens))
    assert_same(result, implementation)


def d_model_sharded():
    """The XLA form only; scalars of a token may be gathered to be summed, but no rows of D."""
    sharded = placed(case(), P("data", None, "model"))
    compiled = jax.jit(partial(forward_backward, attend("xla"))).lower(sharded).compile()
    assert_same(compiled(sharded), "xla")
    assert not re.search(rf"= .*[\[,]{D}[\],].* ({MOVES})\(", compiled.as_text())


def a_source_that_all_devices_share():
    """Inside shard_map, with the check of what varies: its gradient is the sum of theirs."""
    whole, *split = case().values[:3]
    whole, split, half = whole[:1], [v[:2] for v in split], [P(), P("data"), P("data")]
    queries = case().queries
    two = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])

    def total(values, queries):
        out, lse = depth_attention(values, queries, jnp.ones_like(queries), implementation="xla")
        mixed = mix(values, [score(v, queries)[0] for v in values])
        joined = merge_one(values[0], lse[0], values[1], lse[1])
        return sum(jnp.sum(jnp.sin(x)) for x in (out, mixed, joined))

    def summed(values, queries):
        return jax.lax.psum(total(values, queries), "data")

    sharded = jax.shard_map(summed, mesh=two, in_specs=(half, P()), out_specs=P())

    def by_hand(values, queries):
        halves = ([values[0], *(v[i : i + 1] for v in values[1:])] for i in range(2))
        return sum(total(half, queries) for half in halves)

    found, expected = (
        jax.jit(jax.grad(f, argnums=(0, 1)))([whole, *split], queries) for f in (sharded, by_hand)
    )
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert jnp.allclose(a, b, rtol=1e-5, atol=1e-5)


check(a_source_that_all_devices_share)
for name in IMPLEMENTATIONS:
    for spec in SPECS:
        check(jit_with_sharding, name, spec)
    check(in_shard_map, name)
check(d_model_sharded)


def main():
    """What went wrong, by check; empty where nothing did."""
    for name in ("pallas_tpu", "pallas_gpu"):
        BACKENDS[name] = replace(BACKENDS[name], interpret=True)
    assert jax.device_count() == 8
    problems = {}
    for name, run in CHECKS.items():
        try:
            run()
            problems[name] = ""
        except Exception:
            problems[name] = traceback.format_exc()
    print(json.dumps(problems))


if __name__ == "__main__":
    main()
