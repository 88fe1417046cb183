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


C = np.geomspace(1e17, 1e20, 4)
OPTIMUM = 0.1 * C**0.5


@pytest.mark.parametrize(
    ("flops", "sizes", "loss", "code"),
    [
        (1e19, N, np.full(7, 2.5), "no-minimum"),
        (1e19, N, 2.5 + 1e-15 * np.arange(7) ** 2, "no-minimum"),
        (1e19, N, np.full(6, 2.5), "bad-shape"),
        (1e19, [*N[:6], 0.0], np.full(7, 2.5), "not-finite"),
        (float("nan"), N, np.full(7, 2.5), "not-finite"),
        (1e19, 1e7 * (1 + 1e-9 * np.arange(7)), np.arange(7.0) ** 2, "too-few-points"),
        (1e19, [], [], "too-few-points"),
        (1e19, N, 2.5 - 0.1 * np.log(N) + 1e-8 * np.log(N) ** 2, "non-interior-minimum"),
    ],
)
def test_points_that_have_no_parabola(flops, sizes, loss, code):
    with pytest.raises(Refusal) as error:
        profile(flops, sizes, loss)
    assert error.value.code == code


@pytest.mark.parametrize(
    ("flops", "optimum", "weights", "code"),
    [
        (C, OPTIMUM[:3], None, "bad-shape"),
        (C, OPTIMUM, np.ones(3), "bad-shape"),
        (C, np.full(4, 1e8), None, "no-range"),
        (np.full(4, 1e18), OPTIMUM, None, "too-few-points"),
        (C, [*OPTIMUM[:3], -1.0], None, "not-finite"),
        (C, OPTIMUM, [1.0, 1.0, 1.0, 0.0], "bad-weights"),
        (C, OPTIMUM, [1.0, 1.0, 1.0, -1.0], "bad-weights"),
        (C, OPTIMUM, [1.0, 1.0, 1.0, float("nan")], "bad-weights"),
        (C, OPTIMUM, [1.0, 1e-20, 1e-20, 1e-20], "bad-weights"),
        (1e18 * 1.002 ** np.arange(4), C, None, "out-of-range"),
    ],
)
def test_optima_that_have_no_law(flops, optimum, weights, code):
    with pytest.raises(Refusal) as error:
        optimum_law(flops, optimum, weights)
    assert error.value.code == code
