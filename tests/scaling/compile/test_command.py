"""`scaling compile` as a user types it, on CPU devices, and what it says of a bad topology."""

import importlib.util
import json

import pytest

from scaling.compile.topology import KINDS, parse
from scaling.errors import UserError


@pytest.fixture
def study(raw_study, write_study):
    raw_study |= {"model": {"dtype": "bfloat16"}, "train": {"batch_size": 8}, "seeds": [3, 4]}
    return write_study(raw_study)


def test_cells_of_one_seed_are_compiled_and_counted(command, study, make_cell):
    done = command("compile", study, "--topology", "cpu:8", "--size", "d16", "--json")
    document = json.loads(done.stdout)
    assert (document["topology"], document["n_devices"]) == ("cpu:8", 8)
    assert [row["cell"] for row in document["cells"]] == [
        "d16/prenorm/s3", "d16/attnres_block/s3", "d16/attnres_full/s3"]  # fmt: skip
    assert "compiling for cpu:8" in done.stderr
    for row in document["cells"]:
        assert row["fits"] is None  # nobody knows a CPU's memory
        # The count has neither the scalar work of AttnRes nor products as small as these fused.
        assert row["flops"] == pytest.approx(row["analytic_flops"], rel=0.2)
        assert row["collective_bytes"] > 0
        assert row["memory"]["peak"] > row["memory"]["arguments"] > 0
    assert document["cells"][0]["ratio"]["bytes"] == 1.0


def test_the_report_fits_its_width(command, study):
    done = command("compile", study, "--topology", "cpu:2", "--size", "d8", "--variant", "prenorm",
                   "--set", "mesh={data: 2}")  # fmt: skip
    assert "mesh data 2" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("v9:2x2", "unknown topology 'v9:2x2'; known: v4 (as in v4:2x2x1), v5e (as in v5e:4x4), "),
        ("v5p", "topology 'v5p': v5p takes the number of chips as v5p:XxYxZ, such as v5p:2x2x4."),
        ("v5e:2x2x2", "topology 'v5e:2x2x2': v5e takes the number of chips as v5e:XxY, such as "),
        ("cpu:0", "topology 'cpu:0': cpu takes the number of devices as cpu:N, such as cpu:8."),
        ("v5p:99x99x99", "topology 'v5p:99x99x99': more than 16,384 devices; give a smaller one."),
    ],
)
def test_a_topology_that_is_none(given, sentence):
    with pytest.raises(UserError) as error:
        parse(given)
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize("example", KINDS.values())
def test_the_examples_are_topologies(example):
    assert parse(example).name == example


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is not None, reason="has the TPU compiler")
def test_without_the_tpu_compiler_a_sentence_says_how_to_install_it(command, study):
    done = command("compile", study, "--topology", "v5p:2x2x1", check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "scaling: topology 'v5p:2x2x1' needs the TPU compiler, which needs no TPU: make "
    )
    assert done.stdout == ""


def test_a_mesh_that_does_not_match_is_refused_before_any_work(command, study):
    done = command("compile", study, "--topology", "cpu:8", "--set", "mesh={fsdp: 3}", check=False)
    assert done.returncode == 2
    assert "needs 3 devices, and there are 8" in done.stderr
    assert "compiling" not in done.stderr
