"""The largest budgets predicted before they are looked at."""

import numpy as np
import pytest
from made_up_studies import study
from shared_data import read

from analysis import load
from analysis.errors import Refusal
from analysis.holdout import holdout


def test_a_pure_power_law_is_predicted_by_itself():
    found = holdout(study({"prenorm": 1.0, "hc": 1.2}, compute=np.geomspace(0.1, 30, 7)), 2)
    assert len(found.predictions) == 4 and found.n_fitted == 5
    assert found.mean_error["power law"] < 1e-9
    assert found.mean_error["loss of the largest fitted"] > 0.01
    assert found.n_compared == 4 and "with a floor" not in found.mean_error
    assert found.refusals  # a floor that there is not


def test_porian_the_last_three_of_twelve_budgets():
    df = read("porian_2024/optimal_pairs.csv")
    df = df[df["experiment"] == "rw|tuned|short|const|standard|val"]
    names = {"experiment": "variant", "loss_opt": "loss", "flops": "train_flops"}
    found = holdout(load(df.rename(columns=names)[list(names.values())]), 3)
    errors = {
        name: [round(100 * p.errors[name], 1) for p in found.predictions]
        for name in ("power law", "with a floor")
    }
    assert errors == {"power law": [-0.8, -1.4, -1.9], "with a floor": [0.1, 0.2, 0.3]}


@pytest.mark.parametrize(("n", "code"), [(0, "bad-option"), (3, "too-few-sizes")])
def test_refusals(n, code):
    with pytest.raises(Refusal) as error:
        holdout(study({"prenorm": 1.0}), n)
    assert error.value.code == code
