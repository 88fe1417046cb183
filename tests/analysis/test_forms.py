"""Laws and objectives side by side, and what tells them apart."""

import numpy as np
import pandas as pd
import pytest
from made_up_studies import FLOP, study

from analysis import fit, load
from analysis.forms import ADDITIVE, forms


def floored(n: int = 9, noise: float = 1e-4):
    C = np.geomspace(0.1, 100, n)
    loss = (1.2 + C**-0.2) * np.exp(noise * np.random.default_rng(0).normal(size=n))
    rows = {"variant": "prenorm", "size": [f"S{i}" for i in range(n)], "loss": loss}
    return load(pd.DataFrame(rows | {"train_flops": C * FLOP}))


def by_form(df) -> dict:
    return {f.form: f for f in forms(df) if f.variant == "prenorm"}


def test_a_floor_that_is_there_is_found_by_all_that_can_tell():
    found = by_form(floored())
    power, floor = found["A C^-alpha"], found["E + A C^-alpha"]
    assert (floor.E, floor.alpha) == pytest.approx((1.2, 0.2), abs=0.01)
    assert floor.aicc < power.aicc - 10
    assert abs(floor.largest) < 0.1 * abs(power.largest)
    assert power.E is None and power.beta is None
    assert floor.intervals["E"].contains(1.2) and floor.intervals["alpha"].contains(0.2)
    assert not power.intervals["alpha"].contains(0.2)


def test_the_exponents_interval_is_that_of_the_fit():
    df = load("attnres_table2")
    found, law = by_form(df)["A C^-alpha"], fit(df).laws["prenorm"]
    assert vars(found.intervals["alpha"]) == pytest.approx(vars(law.alpha), rel=1e-6)


def test_aicc_by_hand():
    df = floored()
    x, y = np.log(df["pflops_days"]), np.log(df["loss"])
    sse = float(np.sum((y - np.polyval(np.polyfit(x, y, 1), x)) ** 2))
    n, k = 9, 3  # level, slope and variance
    expected = n * np.log(sse / n) + 2 * k + 2 * k * (k + 1) / (n - k - 1)
    assert by_form(df)["A C^-alpha"].aicc == pytest.approx(expected)
    assert by_form(floored(4))["A C^-alpha"].aicc is None


def test_five_sizes_do_not_choose():
    found = by_form(load("attnres_table2"))
    assert "do not tell it from zero" in found["E + A C^-alpha"].refused
    assert round(found["A C^-alpha"].alpha, 4) == 0.0565


def test_objectives_agree_on_an_exact_law():
    found = by_form(study({"prenorm": 1.0}, alpha=0.07))
    for form in ("A C^-alpha", "A C^-alpha, Huber", "A C^-alpha, absolute"):
        assert found[form].alpha == pytest.approx(0.07, rel=1e-6)
        assert found[form].largest == pytest.approx(0, abs=1e-6)


def test_parameters_and_tokens_where_the_runs_have_them():
    N, D = (v.ravel() for v in np.meshgrid(np.geomspace(1e6, 1e8, 4), np.geomspace(1e8, 1e10, 4)))
    loss = 1.5 + 20 / N**0.3 + 30 / D**0.25
    rows = {"variant": "prenorm", "size": range(16), "loss": loss, "train_flops": 6 * N * D}
    df = load(pd.DataFrame(rows | {"n_params_non_embedding": N, "tokens": D}))
    law = by_form(df)[ADDITIVE]
    assert (law.E, law.alpha, law.beta) == pytest.approx((1.5, 0.3, 0.25), rel=1e-3)
    assert all(law.intervals[k].contains(getattr(law, k)) for k in ("E", "alpha", "beta"))
    assert ADDITIVE not in by_form(study({"prenorm": 1.0}))
