"""IsoFLOP profiles and the laws of their minima."""

import numpy as np
import pytest
from shared_data import read

from analysis.errors import Refusal
from analysis.isoflop import optimum_law, profile

N = np.geomspace(1e7, 1e9, 7)


def test_a_parabola_is_found_again():
    found = profile(1e19, N, 2.5 + 0.03 * (np.log(N) - np.log(8e7)) ** 2)
    assert found.n_opt == pytest.approx(8e7, rel=1e-6)
    assert found.loss_opt == pytest.approx(2.5) and found.curvature == pytest.approx(0.03)
    assert found.rmse < 1e-12


@pytest.mark.parametrize(
    ("sizes", "curvature", "centre", "code"),
    [
        (N[:3], 0.03, 3e7, "too-few-points"),
        (N, -0.03, 8e7, "no-minimum"),
        (N, 0.03, 5e9, "non-interior-minimum"),
        (N, 0.03, 1e6, "non-interior-minimum"),
    ],
)
def test_refusals(sizes, curvature, centre, code):
    with pytest.raises(Refusal) as error:
        profile(1e19, sizes, 2.5 + curvature * (np.log(sizes) - np.log(centre)) ** 2)
    assert error.value.code == code


def porian():
    df = read("porian_2024/optimal_pairs.csv")
    return df[df["experiment"] == "rw|tuned|short|const|standard|val"]


def test_porians_exponent():
    df = porian()
    plain = optimum_law(df["flops"], df["n_opt"])
    assert round(plain.exponent.value, 5) == 0.49703
    weighted = optimum_law(df["flops"], df["n_opt"], 1 / df["n_star_std"] ** 2)
    assert round(weighted.exponent.value, 5) == 0.49690


def test_all_published_exponents():
    """Fifteen experiments, as their authors stored them."""
    pairs = read("porian_2024/optimal_pairs.csv")
    fits = read("porian_2024/published_fits.csv").set_index("experiment")
    for name, df in pairs.groupby("experiment"):
        df = df.dropna(subset=["n_opt"])
        found = optimum_law(df["flops"], df["n_opt"]).exponent.value
        assert found == pytest.approx(fits.loc[name, "basic.n_exponent"], abs=1e-5), name


def test_weights_that_are_equal_change_nothing():
    C = np.geomspace(1e17, 1e20, 6)
    optimum = 0.1 * C**0.5 * np.exp(0.05 * np.random.default_rng(0).normal(size=6))
    plain, weighted = optimum_law(C, optimum), optimum_law(C, optimum, np.full(6, 3.0))
    assert weighted.exponent.value == pytest.approx(plain.exponent.value)
    assert weighted.exponent.low == pytest.approx(plain.exponent.low)
