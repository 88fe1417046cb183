"""dynamics.parquet and ablation.parquet of a run directory, as one frame each."""

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plot_worlds import plot_world

from analysis import Refusal
from analysis.dynamics import ABLATION, DYNAMICS, load_ablation, load_dynamics

VARIANTS = {"prenorm": {}, "attnres_full": {"m": 1.3, "kind": "full"}}


@pytest.fixture
def run(tmp_path):
    return plot_world(tmp_path, VARIANTS, sizes=2, seeds=1, n_layers=2, n_lines=20)


def test_every_cell_is_read_with_its_labels_in_front(run):
    df = load_dynamics(run)
    assert list(df.columns) == ["variant", "size", "seed", *DYNAMICS]
    assert df.groupby(["variant", "size", "seed"]).ngroups == 4
    written = pq.read_table(run / "d32-c1-s0" / "dynamics.parquet").to_pandas()
    mine = df[(df["variant"] == "attnres_full") & (df["size"] == "d32")]
    assert mine["value"].tolist() == written["value"].tolist()
    assert df.attrs["damaged"] == []


def test_only_what_is_asked_for(run):
    everything = load_dynamics(run)
    df = load_dynamics(run, metrics=["alpha", "grad_norm"], last_step=True)
    assert set(df["metric"]) == {"alpha", "grad_norm"} and set(df["step"]) == {200}
    expected = everything[everything["metric"].isin(["alpha", "grad_norm"])]
    assert len(df) == (expected["step"] == 200).sum()
    with pytest.raises(Refusal, match="none of 'spin'") as e:
        load_dynamics(run, metrics=["spin"])
    assert e.value.code == "no-dynamics"


def test_dictionaries_and_wider_numbers_are_understood(run):
    """Another writer may encode strings and choose larger types."""
    path = run / "d16-c0-s0" / "dynamics.parquet"
    before, table = load_dynamics(run), pq.read_table(path)
    for name, kind in (("step", pa.int64()), ("value", pa.float64())):
        column = table[name].cast(kind)
        table = table.set_column(table.column_names.index(name), name, column)
    i = table.column_names.index("metric")
    table = table.set_column(i, "metric", table["metric"].dictionary_encode())
    pq.write_table(table.append_column("extra", table["step"]), path)
    assert load_dynamics(run).equals(before)


def test_ablations(run):
    df = load_ablation(run)
    assert list(df.columns) == ["variant", "size", "seed", *ABLATION]
    assert set(df["variant"]) == {"attnres_full"} and set(df["size"]) == {"d32"}
    (run / "d32-c1-s0" / "ablation.parquet").unlink()
    with pytest.raises(Refusal, match="scaling ablate-sources") as e:
        load_ablation(run)
    assert e.value.code == "no-ablation"


def test_runs_without_the_file(run):
    for path in run.glob("*/dynamics.parquet"):
        path.unlink()
    with pytest.raises(Refusal, match=r"has dynamics\.parquet") as e:
        load_dynamics(run)
    assert e.value.code == "no-dynamics"


@pytest.mark.parametrize("damage", ["torn", "text", "empty"])
def test_a_damaged_file_is_named(run, damage):
    path = run / "d16-c1-s0" / "dynamics.parquet"
    data = path.read_bytes()
    path.write_bytes(
        {"torn": data[: len(data) // 2], "text": b"step,metric\n", "empty": b""}[damage]
    )
    with pytest.raises(Refusal, match=r"d16-c1-s0.*cannot be read") as e:
        load_dynamics(run)
    assert e.value.code == "bad-dynamics"
    kept = load_dynamics(run, strict=False)
    assert len(kept.attrs["damaged"]) == 1 and "d16-c1-s0" in kept.attrs["damaged"][0]
    assert kept.groupby(["variant", "size"]).ngroups == 3


def test_a_file_of_other_columns_is_named(run):
    path = run / "d16-c1-s0" / "dynamics.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["value", "site"]), path)
    with pytest.raises(Refusal, match="lacks the columns 'site', 'value'") as e:
        load_dynamics(run)
    assert e.value.code == "bad-dynamics"
    words = pq.read_table(run / "d16-c0-s0" / "dynamics.parquet")
    column = pa.array(["x"] * len(words))
    pq.write_table(words.set_column(0, "step", column), path)
    with pytest.raises(Refusal, match="cannot be read") as e:
        load_dynamics(run)
    assert e.value.code == "bad-dynamics"


def test_runs_that_are_not_done(tmp_path):
    plot_world(tmp_path, VARIANTS, sizes=1, seeds=1, n_layers=2, n_lines=20, unfinished=True)
    with pytest.raises(Refusal) as e:
        load_dynamics(tmp_path)
    assert e.value.code == "no-finished-runs"
    assert load_dynamics(tmp_path, unfinished=True)["step"].max() == 100


def test_it_is_read_without_jax(run):
    code = (
        "import sys; from analysis.dynamics import load_dynamics; "
        f"load_dynamics({str(run)!r}); print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
