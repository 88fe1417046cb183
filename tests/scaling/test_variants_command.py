"""`scaling variants`, `check-variant` and `mixing-matrix`, and options that no variant takes."""

import json

import numpy as np
import pandas as pd
import pytest

from models.residuals import BUILT_IN
from scaling.cells import expand
from scaling.errors import UserError
from scaling.mixing import initial_matrix
from scaling.study import load_study


def test_the_list_has_all_and_fits_the_terminal(command):
    text = command("variants").stdout
    assert max(map(len, text.splitlines())) <= 100 and "\x1b" not in text
    assert all(f"\n  {name} " in text for name in BUILT_IN)
    entries = json.loads(command("variants", "--json").stdout)
    assert {entry["name"] for entry in entries} == set(BUILT_IN)
    for entry in entries:
        assert all(entry[key] for key in ("summary", "equation", "source", "io_per_token"))
        assert entry["train_flops"] >= 1
    own = {entry["name"]: entry["own_params"] for entry in entries}
    # The worked example of published counts: d_model 1024, 24 layers.
    assert own["attnres_full"] == 100_352 and own["denseformer"] == 324 and own["ancre"] == 300
    assert own["hc"] == 296_160 and own["mudd"] == 2_355_269 and own["ddl"] == 98_400


def test_one_shows_its_options(command):
    text = command("variants", "mhc", "--set", "n_streams=2", "--n-layers", 4).stdout
    assert "iterations" in text and "20" in text and "sum or head or mean" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["mhcc"], "did you mean 'mhc'"),
        (["mhc", "--set", "streams=2"], "mhc has no option 'streams'; did you mean 'n_streams'"),
        (["mhc", "--set", "n_streams"], "is no key=value"),
        (["mhc", "--set", "n_streams=0"], "n_streams: Input should be greater than or equal to 1"),
        (["prenorm", "--d-model", "-3"], "d_model"),
        (["mine:Missing"], "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_what_is_not_there_is_refused(command, words, sentence):
    for name in ("variants", "check-variant") if "--d-model" not in words else ("variants",):
        done = command(name, *words, check=False)
        assert done.returncode == 2 and sentence in done.stderr and "Traceback" not in done.stderr


CONTRADICTIONS = {
    "sigmoid without a query": (
        "attnres_full", {"query": "none", "weights": "sigmoid"}, "query none has no keys, so",
    ),
    "a gain without a norm": (
        "attnres_full", {"key_norm": False, "key_gain": True}, "key_gain true needs key_norm true",
    ),
    "heads": ("attnres_full", {"heads": 3}, "heads 3 does not divide d_model 8"),
    "boundaries out of range": (
        "attnres_block", {"boundaries": [1, 4]}, "boundaries [1, 4] must be one or more sublayers "
        "from 1 to 3",
    ),
    "boundaries that fall": ("attnres_block", {"boundaries": [2, 1]}, "each larger than the one"),
    "blocks twice": (
        "attnres_block", {"n_blocks": 2, "sublayers_per_block": 2}, "not both",
    ),
    "no window": ("attnres_swa", {"window": 0}, "greater than or equal to 1"),
    "no stream": ("hc", {"n_streams": 0}, "greater than or equal to 1"),
    "too many permutations": ("mhc_lite", {"n_streams": 6}, "less than or equal to 5"),
    "dilation": ("denseformer", {"dilation": 3}, "dilation 3"),
    "period": ("denseformer", {"period": 3}, "period 3"),
    "sources": ("dca", {"k": 3}, "k 3"),
    "ways": ("mudd", {"ways": 2}, "1 or 4"),
    "channels a head": ("mrla", {"head_dim": 3}, "head_dim 3"),
    "rank": ("laurel", {"rank": 9}, "rank 9"),
    "a rank for nothing": ("highway", {"rank": 2}, "rank"),
    "states": ("laurel", {"form": "pa", "k": 5}, "k 5"),
    "beta": ("ddl", {"beta_init": 2.0}, "less than 2"),
    "temperature": ("ancre", {"tau": 0}, "greater than 0"),
    "an unknown option": ("hc", {"dynamik": True}, "did you mean 'dynamic'"),
    "an unknown word": ("mixer", {"kind": "elmoo"}, "'elmo', 'densenet' or 'sk'"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", CONTRADICTIONS)
def test_options_that_contradict_are_refused_at_load(raw_study, write_study, mistake):
    name, options, sentence = CONTRADICTIONS[mistake]
    raw_study["variants"] = {"prenorm": None, "it": {"residual": name, **options}}
    with pytest.raises(UserError) as refusal:
        expand(load_study(write_study(raw_study)), 256)
    assert sentence in str(refusal.value) and "'it'" in str(refusal.value)


def test_matrices_of_a_study(raw_study, write_study, command, tmp_path):
    study = write_study(raw_study)
    paths = command("mixing-matrix", study, "--size", "d8", "--out", tmp_path / "m").stdout.split()
    assert [path.rsplit(".", 1)[1] for path in paths] == ["csv", "png", "svg"]
    rows = pd.read_csv(tmp_path / "m" / "mixing.csv")
    assert rows.groupby("cell").size().to_dict() == {
        f"d8/{variant}/s0": 15 for variant in raw_study["variants"]
    }
    prenorm = rows[rows.cell == "d8/prenorm/s0"]
    np.testing.assert_allclose(prenorm.weight, 1, rtol=1e-6)
    full = rows[rows.cell == "d8/attnres_full/s0"]
    np.testing.assert_allclose(full.weight, 1 / (full.sublayer + 1), rtol=1e-5)


def test_a_matrix_is_that_of_the_equations(make_cell, tmp_path):
    """Highway with a constant gate g: stick-breaking, g (1 - g)^(age), and the embedding's rest."""
    cell = make_cell("prenorm")
    residual = cell.model.residual.model_copy(
        update={"name": "highway", "options": {"gate": "scalar", "bias": -1.0}}
    )
    model = cell.model.model_copy(update={"residual": residual})
    m = initial_matrix(cell.model_copy(update={"model": model}), tmp_path, 1)
    g, S = 1 / (1 + np.e), cell.model.n_sublayers
    expected = np.zeros((S + 1, S + 1))
    for l in range(S + 1):  # noqa: E741
        expected[l, 0] = (1 - g) ** l
        for i in range(1, l + 1):
            expected[l, i] = g * (1 - g) ** (l - i)
    np.testing.assert_allclose(m, expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(m.sum(axis=1), 1, rtol=1e-5)


def test_a_run_without_finished_cells_has_no_matrices(command, tmp_path):
    done = command("mixing-matrix", tmp_path, check=False)
    assert done.returncode == 2 and "holds no study" in done.stderr
