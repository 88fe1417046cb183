"""Run by test_programs: what the reader says of small programs on eight CPU devices, as JSON."""

import json
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scaling.compile import topology
from scaling.compile.build import _DUMPED, _as_partitioned
from scaling.compile.cost import program_cost
from scaling.compile.hlo import parse

jax.config.update("jax_enable_compilation_cache", False)  # what comes out of it writes no files
DEVICES = topology.devices(topology.parse("cpu:8"))
MESH = Mesh(DEVICES, ("d",))
ROWS, COLUMNS = 64, 128


def compiled(function, *shapes, spec=None):
    sharding = NamedSharding(MESH, PartitionSpec(*spec)) if spec else None
    shaped = [jax.ShapeDtypeStruct(s, d, sharding=sharding) for s, d in shapes]
    with tempfile.TemporaryDirectory() as folder:
        options = {"xla_dump_to": folder, "xla_dump_hlo_pass_re": _DUMPED}
        program = jax.jit(function).lower(*shaped).compile(compiler_options=options)
        return program, _as_partitioned(DEVICES, Path(folder))


def collective(body, out):
    """Of a program that does one collective on bf16 [ROWS / 8, COLUMNS] a device."""
    spec = PartitionSpec("d")
    mapped = jax.shard_map(body, mesh=MESH, in_specs=spec, out_specs=out, check_vma=False)
    _, cost = compiled(mapped, ((ROWS, COLUMNS), jnp.bfloat16), spec=("d",))
    return cost.collective_bytes


def collectives():
    split, whole = PartitionSpec("d"), PartitionSpec()
    wide = lambda x: jnp.tile(x, (8, 1))  # noqa: E731
    ring = [(i, (i + 1) % 8) for i in range(8)]
    return {
        "all-gather": collective(lambda x: jax.lax.all_gather(x, "d", tiled=True), whole),
        "all-reduce": collective(lambda x: jax.lax.psum(x, "d"), whole),
        "reduce-scatter": collective(
            lambda x: jax.lax.psum_scatter(wide(x), "d", tiled=True), split
        ),
        "all-to-all": collective(
            lambda x: jax.lax.all_to_all(x, "d", split_axis=0, concat_axis=0, tiled=True), split
        ),
        "collective-permute": collective(lambda x: jax.lax.ppermute(x, "d", ring), split),
    }


def scanned(n: int, unroll: bool = False):
    """(cost, cost analysis) of n layers and their gradient, FSDP."""

    def loss(w, x):
        layer = lambda x, w: (jnp.tanh(x @ w), None)  # noqa: E731
        if unroll:
            for i in range(n):
                x, _ = layer(x, w[i])
        else:
            x, _ = jax.lax.scan(layer, x, w)
        return jnp.sum(x.astype(jnp.float32))

    program, partitioned = compiled(
        jax.grad(loss, (0, 1)),
        ((n, 64, 64), jnp.bfloat16),
        ((ROWS, 64), jnp.bfloat16),
        spec=(None, "d"),
    )
    return program_cost(parse(program.as_text()), 8), partitioned, program.cost_analysis()


def loop_free():
    def step(a, b, c):
        y = jax.nn.gelu(a @ b)
        return y @ c, jnp.sum(y), y[3:7, :5]

    arguments = ((256, 512), (512, 1024), (1024, 256))
    program, _ = compiled(step, *((shape, jnp.float32) for shape in arguments))
    cost, analysis = program_cost(parse(program.as_text()), 1), program.cost_analysis()
    return {"flops": [cost.flops, analysis["flops"]],
            "bytes": [cost.bytes, analysis["bytes accessed"]]}  # fmt: skip


def main() -> dict:
    four, eight, unrolled = scanned(4), scanned(8), scanned(4, unroll=True)
    return {
        "collectives": collectives(),
        "loop_free": loop_free(),
        "flops": [run[0].flops for run in (four, eight, unrolled)],
        "sent": [sum(run[1].collective_bytes.values()) for run in (four, eight, unrolled)],
        "uncounted": [run[0].uncounted_loops + run[1].uncounted_loops for run in (four, eight)],
    }


if __name__ == "__main__":
    print(json.dumps(main()))
