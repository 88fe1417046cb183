"""Resampled intervals of the multiplier, against the closed form and known noise."""

import numpy as np
import pytest
from made_up_studies import study

from analysis import load, multiplier
from analysis.bootstrap import bootstrap, bootstraps
from analysis.errors import Refusal
from analysis.huber import huber


def noisy(n_sizes, seed=0, own=0.002, size=0.004):
    rng = np.random.default_rng(seed)
    noise = own * rng.normal(size=(2, n_sizes, 1)) + size * rng.normal(size=(1, n_sizes, 1))
    compute = np.geomspace(0.1, 30, n_sizes)
    return study({"prenorm": 1.0, "hc": 1.2}, noise=noise, compute=compute)


@pytest.mark.parametrize("kind", ["parametric", "sizes", "runs"])
def test_of_many_sizes_it_is_the_closed_form(kind):
    """With 40 points t is normal; the closed form is the wider of two, and conservative."""
    df = noisy(40)
    exact, found = multiplier(df, "hc").shared, bootstrap(df, "hc", kind=kind)
    assert found.value == pytest.approx(exact.value, rel=1e-12)
    ratio = np.log(found.high / found.low) / np.log(exact.high / exact.low)
    assert 0.85 < ratio < 1.1


def test_the_noise_that_a_size_shares_cancels():
    paired, alone = (bootstrap(noisy(12, size=s), "hc") for s in (0.02, 0.0))
    width = lambda e: np.log(e.high / e.low)  # noqa: E731
    assert width(paired) < 2 * width(alone)


def test_table2_parametric():
    found = bootstrap(load("attnres_table2"), "attnres_block")
    exact = multiplier(load("attnres_table2"), "attnres_block").shared
    assert found.value == pytest.approx(exact.value, rel=1e-12)
    assert exact.low < found.low < found.high < exact.high  # percentiles of five points


def test_five_sizes_are_not_resampled():
    with pytest.raises(Refusal, match="5 sizes have 126 distinct resamples") as error:
        bootstrap(load("attnres_table2"), "attnres_block", kind="sizes")
    assert error.value.code == "too-few-sizes"


def test_an_unknown_kind():
    with pytest.raises(Refusal, match="must be parametric, sizes or runs"):
        bootstrap(noisy(6), "hc", kind="points")


def test_seeds_are_drawn_with_their_sizes_and_in_pairs():
    """What the two runs of a seed share cancels; what they do not, widens the interval."""
    rng, compute = np.random.default_rng(0), np.geomspace(0.1, 30, 12)

    def width(own, common):
        noise = own * rng.normal(size=(2, 12, 3)) + common * rng.normal(size=(1, 12, 3))
        df = study({"prenorm": 1.0, "hc": 1.2}, noise=noise, compute=compute, seeds=3)
        e = bootstrap(df, "hc", kind="runs")
        return np.log(e.high / e.low)

    quiet = width(0.001, 0.0)
    assert width(0.001, 0.003) < 2 * quiet and width(0.01, 0.0) > 4 * quiet


def test_all_kinds_of_a_studys_multipliers():
    df = noisy(5)
    found = bootstraps(df, [multiplier(df, "hc")], n_resamples=500, seed=3)["hc"]
    assert found.sizes is None and found.runs is None and "126 distinct" in found.refused
    assert found.parametric == bootstrap(df, "hc", n_resamples=500, seed=3)
    assert bootstraps(noisy(6), [multiplier(noisy(6), "hc")], 500)["hc"].refused is None


def test_too_few_resamples():
    with pytest.raises(Refusal, match="no percentiles"):
        bootstrap(noisy(6), "hc", n_resamples=1)


def test_huber_is_least_squares_where_all_residuals_are_small():
    """Its interval then is that of t, a scale being drawn for every resample."""
    noise = 1e-5 * np.random.default_rng(0).normal(size=(2, 12, 1))
    df = study({"prenorm": 1.0, "hc": 1.2}, noise=noise, compute=np.geomspace(0.1, 30, 12))
    curves = {v: tuple(r[["pflops_days", "loss"]].to_numpy().T) for v, r in df.groupby("variant")}
    found, exact = huber(curves, "prenorm", "hc", n_resamples=4000), multiplier(df, "hc").shared
    assert found.value == pytest.approx(exact.value, rel=1e-9)
    assert 0.8 < np.log(found.high / found.low) / np.log(exact.high / exact.low) < 1.1


def test_one_bad_run_moves_huber_by_less_than_its_interval():
    rng = np.random.default_rng(2)
    noise = 0.002 * rng.normal(size=(2, 5, 1))
    values = []
    for bad in (0.0, 0.2):
        noise[1, 2] += bad
        df = study({"prenorm": 1.0, "hc": 1.2}, noise=noise)
        curves = {
            v: tuple(r[["pflops_days", "loss"]].to_numpy().T) for v, r in df.groupby("variant")
        }
        values.append(huber(curves, "prenorm", "hc"))
    clean, moved = values
    assert clean.contains(moved.value) and moved.contains(1.2)
    assert np.log(moved.high / moved.low) < 4 * np.log(clean.high / clean.low)
