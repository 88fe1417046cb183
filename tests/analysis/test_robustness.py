"""What a multiplier rests on, changed one thing at a time."""

import numpy as np
import pytest
from made_up_studies import study

from analysis import load, multiplier, robustness
from analysis.floor import fit_floors
from analysis.objectives import Huber, LeastSquares


def test_nothing_moves_an_exact_multiplier():
    r = robustness(study({"prenorm": 1.0, "hc": 1.2}), "hc")
    assert list(r.left_out.values()) == pytest.approx([1.2] * 5)
    assert r.single_scale == pytest.approx(1.2)
    assert r.floors[0].multiplier.value == pytest.approx(1.2) and r.wall_clock is None
    free = r.floors[-1]
    assert free.floor == "free" and free.multiplier is None and "ran to zero" in free.refused


def test_table2():
    r = robustness(load("attnres_table2"), "attnres_block")
    floors = {f.floor: f.multiplier.value for f in r.floors if f.multiplier}
    assert round(floors["0"], 3) == 1.274 and round(r.single_scale, 3) == 1.310
    values = [floors[k] for k in ("0", "1.02", "1.35")]
    assert values == sorted(values)  # a higher floor, a larger multiplier
    assert min(r.left_out.values()) > 1.20 and max(r.left_out.values()) < 1.25


def test_each_size_left_out_in_turn():
    noise = np.zeros((2, 5, 1))
    noise[1, 4] = 0.05  # the variant's largest run is bad
    r = robustness(study({"prenorm": 1.0, "hc": 1.2}, noise=noise), "hc")
    assert r.left_out["S4"] == pytest.approx(1.2)
    assert all(m < 1.15 for size, m in r.left_out.items() if size != "S4")


def test_one_bad_run_of_fifteen_moves_the_huber_multiplier_by_less_than_its_interval():
    rng = np.random.default_rng(3)

    def shared(df, objective):
        table = {
            v: tuple(r[["pflops_days", "loss"]].to_numpy().T) for v, r in df.groupby("variant")
        }
        return fit_floors(table, 0.0, "shared", objective).multiplier("prenorm", "hc", 1.0)

    for trial in range(20):
        noise = 0.002 * rng.normal(size=(3, 5, 1)) + 0.003 * rng.normal(size=(1, 5, 1))
        names = {"prenorm": 1.0, "hc": 1.2, "mhc": 1.1}
        clean = study(names, noise=noise)
        noise[1, trial % 5] += 0.2  # it diverged and came back
        bad, interval = study(names, noise=noise), multiplier(clean, "hc").shared
        width = interval.high - interval.low
        assert abs(shared(bad, Huber(1e-3)) - shared(clean, Huber(1e-3))) < width
        assert abs(shared(bad, LeastSquares()) - shared(clean, LeastSquares())) > width


def test_three_sizes_leave_none_out():
    df = study({"prenorm": 1.0, "hc": 1.2}, compute=np.array([1.0, 2.0, 4.0]))
    assert robustness(df, "hc").left_out == {}


@pytest.mark.parametrize("slowdown", [1.0, 1.25])
def test_seconds_instead_of_flops(slowdown):
    """At equal FLOPs a variant that is slower is worth as much less."""
    df = study({"prenorm": 1.0, "hc": 1.2})
    factor = np.where(df["variant"] == "hc", slowdown, 1.0)
    df["train_seconds"] = df["train_flops"] * factor / 1e15
    r = robustness(load(df.drop(columns="pflops_days")), "hc")
    assert r.wall_clock.value == pytest.approx(1.2 / slowdown)
    assert r.wall_clock.low <= r.wall_clock.value <= r.wall_clock.high


def test_seconds_that_are_missing_give_no_clock():
    df = study({"prenorm": 1.0, "hc": 1.2})
    df["train_seconds"] = [*[1.0] * 9, np.nan]
    assert robustness(df, "hc").wall_clock is None
