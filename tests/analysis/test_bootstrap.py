"""Resampled intervals of the multiplier, against the closed form and known noise."""

import numpy as np
import pytest
from made_up_studies import study

from analysis import load, multiplier
from analysis.bootstrap import bootstrap
from analysis.errors import Refusal


def noisy(n_sizes, seed=0, own=0.002, size=0.004):
    rng = np.random.default_rng(seed)
    noise = own * rng.normal(size=(2, n_sizes, 1)) + size * rng.normal(size=(1, n_sizes, 1))
    compute = np.geomspace(0.1, 30, n_sizes)
    return study({"prenorm": 1.0, "hc": 1.2}, noise=noise, compute=compute)


@pytest.mark.parametrize("kind", ["parametric", "sizes"])
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
    with pytest.raises(Refusal, match="must be parametric or sizes"):
        bootstrap(noisy(6), "hc", kind="points")
