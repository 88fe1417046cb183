"""The table of rules: who lies where, what falls back, what is refused; and golden shardings."""

import json
import logging
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from models.sharding import LOGICAL_AXES, mesh_axes
from scaling import sharding
from scaling.cells import expand
from scaling.errors import UserError
from scaling.sharding import AXES, RULES, Sharding, check, resolve_mesh
from scaling.step import Program
from scaling.study import Mesh, load_study

CONFIGS = sorted((Path(__file__).resolve().parents[2] / "configs").glob("*.yaml"))
GOLDEN = Path(__file__).with_name("golden_shardings.json")


def abstract(**sizes: int) -> AbstractMesh:
    shape = tuple(sizes.get(axis, 1) for axis in AXES)
    return AbstractMesh(shape, AXES, axis_types=(AxisType.Auto,) * len(AXES))


@pytest.fixture
def cell(make_cell):
    """12 sequences in one micro-batch, 32 positions, 2 heads of 4."""
    one = make_cell(batch_size=12)
    return one.model_copy(
        update={"model": one.model.model_copy(update={"n_heads": 2, "n_kv_heads": 1})}
    )


def split(cell, axes, shape, **sizes) -> P:
    return Sharding(abstract(**sizes), cell.model)(axes, shape).spec


def test_every_logical_axis_has_a_rule():
    assert list(RULES) == [*LOGICAL_AXES, None]


def test_each_axis_goes_where_the_table_says(cell):
    everything = {"data": 2, "fsdp": 2, "sequence": 2, "tensor": 2}
    for axis, names in RULES.items():
        if axis == "kv_heads":  # the cell has one
            continue
        size = 2 if axis == "heads" else 16
        expected = names[0] if len(names) == 1 else names or None
        assert split(cell, (axis,), (size,), **everything) == P(expected), axis


def test_sources_of_depth_attention_are_never_replicated(cell):
    """Every mesh axis that holds more than one device splits x between sublayers."""
    for axis in AXES:
        assert mesh_axes(split(cell, ("batch", "stream", None), (12, 32, 8), **{axis: 2})) == (
            axis,
        )


def test_what_does_not_divide_drops_mesh_axes_from_the_right(cell, caplog):
    sharding.log_once.cache_clear()
    with caplog.at_level(logging.WARNING, "scaling"):
        for _ in range(2):
            assert split(cell, ("batch",), (6,), data=2, fsdp=2) == P("data")
        assert split(cell, ("embed", "mlp"), (9, 8), fsdp=2, tensor=2) == P(None, "tensor")
    assert caplog.messages == [
        "mesh: data x fsdp = 4 does not divide 6 (batch), which is split over data",
        "mesh: fsdp = 2 does not divide 9 (embed), which is replicated",
    ]


def test_heads_are_split_whole(cell):
    assert split(cell, (None, "heads"), (8, 8), tensor=2) == P(None, "tensor")
    assert split(cell, (None, "kv_heads"), (8, 4), tensor=2) == P(None, None)  # one head of 4
    assert split(cell, (None, "heads"), (8, 8), tensor=4) == P(None, None)


def test_an_array_takes_each_mesh_axis_once(cell):
    assert split(cell, ("stream", "mlp"), (8, 8), tensor=2) == P("tensor", None)


def test_an_unknown_logical_axis_is_named(cell):
    with pytest.raises(ValueError, match="no rule for the logical axis 'width'; there are batch"):
        split(cell, ("width",), (8,))


@pytest.mark.parametrize(
    "n, expected",
    [(1, Mesh()), (4, Mesh(fsdp=4)), (8, Mesh(fsdp=4, sequence=2)), (12, Mesh(fsdp=12))],
)
def test_auto_splits_sequences_first_and_positions_next(cell, n, expected):
    assert resolve_mesh(cell, n) == expected


MISTAKES = {
    "devices": ({"fsdp": 8, "tensor": 2}, 8, "mesh fsdp 8 x tensor 2 needs 16 devices, and there "
                "are 8; change it, or say `mesh: auto`."),
    "one device": ({}, 8, "mesh data 1 needs 1 devices, and there are 8"),
    "batch": ({"data": 4, "fsdp": 2}, 8, r"micro-batches of 12 sequences \(batch_size 12 / "
              r"accumulate 1\) cannot be split over data x fsdp = 8; change batch_size"),
    "heads": ({"tensor": 4, "fsdp": 2}, 8, "mesh tensor 4 is larger than the 2 heads; a head lies"),
    "positions": ({"sequence": 3}, 3, "mesh sequence 3 does not divide seq_len 32"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_cannot_be_split_so_is_refused(cell, mistake):
    mesh, n_devices, sentence = MISTAKES[mistake]
    with pytest.raises(UserError, match=sentence):
        resolve_mesh(cell.model_copy(update={"mesh": Mesh(**mesh)}), n_devices)


def test_devices_that_nothing_can_be_split_over_are_refused(cell):
    with pytest.raises(UserError, match=r"7 devices can share neither the 12 sequences .* nor the"):
        resolve_mesh(cell, 7)


@pytest.mark.parametrize(
    "setting, kernel, platform",
    [("implementation", "pallas_tpu", "tpu"), ("attention", "cudnn", "gpu")],
)
def test_a_kernel_of_another_platform_is_refused(cell, setting, kernel, platform):
    other = cell.model_copy(update={"model": cell.model.model_copy(update={setting: kernel})})
    check([cell], jax.devices())
    with pytest.raises(UserError, match=f"model.{setting} {kernel} runs on {platform}, and the"):
        check([cell, other], jax.devices())


def golden() -> dict:
    """Every parameter and optimizer moment of each variant of demo.yaml, on 4 x 2 devices."""
    study = load_study(Path(__file__).resolve().parents[2] / "configs" / "demo.yaml")
    found = {}
    for cell in expand(study, 256, ["d48"]):
        for name, mesh in {
            "fsdp 4 x tensor 2": abstract(fsdp=4, tensor=2),
            "data 4 x fsdp 2": abstract(data=4, fsdp=2),
        }.items():
            leaves = jax.tree_util.tree_leaves_with_path(Program(cell, mesh).state_shapes)
            found[f"{cell.variant}, {name}"] = {
                jax.tree_util.keystr(path): f"{list(leaf.shape)} {tuple(leaf.sharding.spec)}"
                for path, leaf in leaves
            }
    return found


def test_parameters_and_moments_lie_where_they_did():
    expected = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert golden() == expected, "if meant so: python tests/scaling/test_mesh_rules.py"


def test_moments_lie_with_their_parameters():
    """Independent of the golden file: each array of AdamW's state is like its parameter."""
    for name, leaves in golden().items():
        params = {k.removeprefix("['params']"): v for k, v in leaves.items() if "params" in k}
        moments = [k for k in leaves if "opt_state" in k and leaves[k] != "[] ()"]
        assert len(moments) == 2 * len(params), name
        for path in moments:
            own = next(p for p in params if path.endswith(p))
            assert leaves[path] == params[own], path


# Of the zoo's variants, whose models are small, test_contract.py compares the numbers.
CELLS = {
    f"{path.stem}/{cell.key}": cell
    for path in CONFIGS
    if path.stem not in ("zoo", "ablations")
    for cell in expand(load_study(path), 256, seeds=load_study(path).seeds[:1])
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_every_cell_of_every_ladder_lowers_on_an_abstract_mesh(name):
    """Small vocabulary and few positions: neither changes which rules apply."""
    cell = CELLS[name]
    data = cell.data.model_copy(update={"seq_len": 64})
    model = cell.model.model_copy(update={"seq_len": 64, "attention": "xla"})
    program = Program(
        cell.model_copy(update={"data": data, "model": model}), abstract(fsdp=4, tensor=2)
    )
    traced = program.trace_train(*program.shapes())
    text = traced.lower(lowering_platforms=("cpu",)).as_text()
    assert text.count("sdy.sharding_constraint") + text.count("@Sharding") > cell.model.n_layers


def test_losses_are_fp32_whatever_the_model(cell):
    half = cell.model_copy(update={"model": cell.model.model_copy(update={"dtype": "bfloat16"})})
    program = Program(half)
    total, _ = jax.eval_shape(program.nll_sum, *(lambda s, b: (s["params"], b))(*program.shapes()))
    assert total.dtype == jnp.float32


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(golden(), indent=1) + "\n", encoding="utf-8")
