"""The reader on programs of the TPU compiler: cost analysis, loops, lack of memory."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import SingleDeviceSharding

from scaling.cells import expand
from scaling.compile import topology
from scaling.compile.build import compile_cell
from scaling.compile.cost import program_cost
from scaling.compile.hlo import parse
from scaling.compile.rates import RATES
from scaling.errors import UserError
from scaling.study import load_study

pytestmark = [pytest.mark.tpu_aot, pytest.mark.usefixtures("no_compile_cache", "tpu_devices")]
KINDS = {"v4:2x2x1": "TPU v4", "v5e:1x1": "TPU v5 lite", "v5p:1x1x1": "TPU v5",
         "v6e:2x2": "TPU v6 lite", "tpu7x:1x1x1": "TPU7x"}  # fmt: skip
BF16, FP32 = jnp.bfloat16, jnp.float32


def devices(name: str) -> list:
    return topology.devices(topology.parse(name))


def compiled(function, *shapes, on: str = "v5p:1x1x1"):
    where = SingleDeviceSharding(devices(on)[0])
    arguments = [jax.ShapeDtypeStruct(s, d, sharding=where) for s, d in shapes]
    return jax.jit(function).lower(*arguments).compile()


def cost(program, kind="TPU v5"):
    return program_cost(parse(program.as_text()), 1, RATES[kind])


def halves(program) -> float:
    """Bytes of the prefetching copies, which the cost analysis counts twice."""
    entry = parse(program.as_text()).entry.instructions.values()
    return sum(2 * i.outputs[0].bytes for i in entry if i.opcode == "copy-start")


@pytest.mark.parametrize("name", KINDS)
def test_the_devices_and_the_rates_that_the_compiler_takes_them_to_have(name):
    assert devices(name)[0].device_kind == KINDS[name]
    rates = RATES[KINDS[name]]
    moving = compiled(jnp.exp, ((4096, 4096), FP32), on=name).cost_analysis()
    if (
        moving["optimal_seconds"] > 0
    ):  # it is garbage for programs with some calls of the compiler's
        seen = moving["bytes accessed"] / moving["optimal_seconds"]
        assert seen == pytest.approx(rates.bandwidth, rel=0.01)
    shapes = [((8192, 8192), BF16)] * 2
    product = compiled(jnp.matmul, *shapes, on=name)
    analysis, ours = product.cost_analysis(), cost(product, KINDS[name])
    assert ours.flops == 2 * 8192**3
    if analysis["optimal_seconds"] > 0:
        copies = halves(product) / rates.bandwidth
        expected = 2 * 8192**3 / rates.flops + 2 * copies
        assert analysis["optimal_seconds"] == pytest.approx(expected, rel=0.02)


def mlp(x, w, v):
    y = jax.nn.silu(x @ w) * (x @ v)
    return jnp.mean((y @ w.T).astype(FP32) ** 2)


def test_without_loops_it_agrees_with_the_cost_analysis():
    program = compiled(jax.grad(mlp, (0, 1, 2)), ((2048, 1024), BF16), ((1024, 4096), BF16),
                       ((1024, 4096), BF16))  # fmt: skip
    ours, theirs = cost(program), program.cost_analysis()
    assert ours.flops == pytest.approx(theirs["flops"], rel=0.01)
    assert ours.bytes + halves(program) == pytest.approx(theirs["bytes accessed"], rel=0.01)
    late = halves(program) / RATES["TPU v5"].bandwidth
    assert ours.seconds + late == pytest.approx(theirs["optimal_seconds"], rel=0.02)
    assert ours.cycles > 0


def test_twice_the_layers_of_a_scan_are_twice_the_products():
    def loss(ws, x):
        y, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)
        return jnp.sum(y.astype(FP32))

    costs = [cost(compiled(jax.grad(loss), ((n, 512, 512), BF16), ((1024, 512), BF16)))
             for n in (6, 12)]  # fmt: skip
    assert costs[0].flops == 6 * 3 * 2 * 1024 * 512 * 512
    assert costs[1].flops == 2 * costs[0].flops
    assert costs[1].seconds == pytest.approx(2 * costs[0].seconds, rel=0.1)
    assert costs[0].uncounted_loops == 0


SIZE = {"d_model": 128, "n_layers": 4, "n_heads": 1, "learning_rate": 1e-3, "tokens": 10**7}


def cell(raw_study, write_study, variant: str, batch_size: int):
    raw_study |= {"sizes": {"d128": SIZE | {"batch_size": batch_size}},
                  "model": {"dtype": "bfloat16"}}  # fmt: skip
    raw_study["data"]["seq_len"] = 256
    return expand(load_study(write_study(raw_study)), 256, variants=[variant])[0]


@pytest.mark.parametrize("variant", ["prenorm", "attnres_block"])
def test_a_step_is_counted_whole(raw_study, write_study, variant):
    row = compile_cell(cell(raw_study, write_study, variant, 16), devices("v5p:2x2x1"))
    assert row["fits"] is True
    assert row["uncounted_loops"] == 0
    assert row["flops"] == pytest.approx(row["analytic_flops"], rel=0.1)
    assert row["collective_bytes"] > 0
    assert 0 < row["seconds"] < 1
    assert 0 < row["mfu"] < 1


def test_what_does_not_fit_says_by_how_much_and_its_largest_tensors(raw_study, write_study):
    row = compile_cell(cell(raw_study, write_study, "prenorm", 16384), devices("v5e:1x1"))
    assert row["fits"] is False
    assert row["memory"]["peak"] > row["memory"]["hbm"]
    largest = row["largest"][0]
    assert largest["bytes"] * largest["count"] > row["memory"]["peak"] / 20
    assert "16384" in largest["shape"] or str(16384 * 256) in largest["shape"]
    assert "RESOURCE_EXHAUSTED" in row["refusal"]


def test_a_shape_that_the_compiler_refuses_is_a_sentence():
    with pytest.raises(UserError, match="the TPU compiler refuses it: Topology layout"):
        devices("v5p:3x3x3")


@pytest.mark.parametrize("variant", ["prenorm", "attnres_block"])
def test_what_a_chip_sends_does_not_grow_with_the_number_of_chips(raw_study, write_study, variant):
    """Weak scaling, two sequences a chip: of one array, g chips send each other (g - 1) / g."""
    size = {"d_model": 256, "n_layers": 2, "n_heads": 2, "learning_rate": 1e-3, "tokens": 2**20}
    raw_study |= {"sizes": {"d256": size}, "model": {"dtype": "bfloat16"}}
    raw_study["data"]["seq_len"] = 128
    sent = []
    for name in ("v5p:2x2x1", "v5p:2x2x2", "v5p:2x2x4"):
        chips = devices(name)
        raw_study["train"]["batch_size"] = 2 * len(chips)
        cell = expand(load_study(write_study(raw_study)), 256, variants=[variant])[0]
        bytes_sent = compile_cell(cell, chips)["collective_bytes"]
        sent.append(bytes_sent / (1 - 1 / len(chips)))
    assert sent[0] > 0
    assert sent == pytest.approx([sent[0]] * 3, rel=0.05)
