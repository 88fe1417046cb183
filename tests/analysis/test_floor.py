"""Laws with a floor: known ones found again, published ones, and floors that data do not give."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import least_squares
from shared_data import read

from analysis import fit, load
from analysis.errors import Refusal
from analysis.floor import FloorLaw, fit_floors
from analysis.floor_profile import floor_interval
from analysis.objectives import LeastAbsolute, LossLeastSquares

C = np.geomspace(0.1, 30, 8)


def curve(E, A, alpha, C=C):
    return C, E + A * C**-alpha


def test_known_laws_are_found_again():
    curves = {"a": curve(1.5, 0.8, 0.15), "b": curve(1.4, 0.7, 0.2)}
    fits = fit_floors(curves, "free")
    for name, (E, A, alpha) in {"a": (1.5, 0.8, 0.15), "b": (1.4, 0.7, 0.2)}.items():
        law = fits.laws[name]
        assert (law.E, law.A, law.alpha) == pytest.approx((E, A, alpha), rel=1e-5)
        assert law.reducible == pytest.approx(A * law.at**-alpha, rel=1e-5)
        assert law.compute(float(law.predict(3.0))) == pytest.approx(3.0)
    assert fits.convergence.share_at_best >= 0.9 and fits.dof == 16 - 6


def test_shared_floor_and_exponent():
    curves = {"a": curve(1.5, 0.8, 0.15), "b": curve(1.5, 0.76, 0.15)}
    fits = fit_floors(curves, "shared", "shared")
    E, A_a, alpha = fits.laws["a"].E, fits.laws["a"].A, fits.laws["a"].alpha
    assert (E, A_a, alpha) == pytest.approx((1.5, 0.8, 0.15), rel=1e-5)
    # With one floor and one exponent the multiplier is constant (fitting identity).
    loss = {k: float(law.predict(2.0)) for k, law in fits.laws.items()}
    expected = ((loss["a"] - E) / (loss["b"] - E)) ** (1 / alpha)
    for at in (0.5, 2.0, 20.0):
        assert fits.multiplier("a", "b", at) == pytest.approx(expected, rel=1e-5)


def table2():
    df = load("attnres_table2")
    return {
        v: tuple(df[df["variant"] == v][["pflops_days", "loss"]].to_numpy().T)
        for v in ("prenorm", "attnres_block")
    }


def test_without_a_floor_it_is_the_line_in_logs():
    laws, again = fit(load("attnres_table2")).laws, fit_floors(table2())
    for name, law in again.laws.items():
        assert pytest.approx(laws[name].A.value, rel=1e-7) == law.A
        assert law.alpha == pytest.approx(laws[name].alpha.value, rel=1e-6)
    assert again.convergence.share_at_best == 1


def test_the_block_multiplier_grows_with_the_floor_that_is_pinned():
    """Against scipy, and the values of a line of ln(L - E) on ln C, which differ a little."""
    curves = table2()
    at = curves["attnres_block"][0].max()
    lines = {0.0: 1.274, 1.0: 1.30, 1.2: 1.32, 1.4: 1.36, 1.5: 1.40}
    for E, of_line in lines.items():
        found = fit_floors(curves, E).multiplier("prenorm", "attnres_block", at)
        laws = {}
        for name, (x, y) in curves.items():

            def off(p, x=x, y=y):
                return np.log(E + np.exp(p[0] - p[1] * np.log(x))) - np.log(y)  # noqa: B023

            laws[name] = least_squares(off, (0.0, 0.1), xtol=1e-15, ftol=1e-15, gtol=1e-15).x
        (a, alpha), (b, beta) = laws["prenorm"], laws["attnres_block"]
        expected = np.exp((a - b + beta * np.log(at)) / alpha) / at
        assert found == pytest.approx(expected, rel=1e-6)
        assert found == pytest.approx(of_line, abs=0.025)


def porian_tuned():
    df = read("porian_2024/optimal_pairs.csv")
    df = df[df["experiment"] == "rw|tuned|short|const|standard|val"]
    return df["flops"].to_numpy() / 1e17, df["loss_opt"].to_numpy()


def test_porians_tuned_law():
    """C in 1e17 FLOP; least squares in L, as published."""
    fits = fit_floors({"tuned": porian_tuned()}, "free", objective=LossLeastSquares())
    law = fits.laws["tuned"]
    assert round(law.alpha, 5) == 0.09057
    assert round(law.E, 4) == 1.6437
    assert round(fit_floors({"tuned": porian_tuned()}).laws["tuned"].alpha, 5) == 0.05025


def test_the_profile_interval_covers_the_floor():
    rng, held, widths = np.random.default_rng(5), [], []
    for _ in range(40):
        curves = {k: curve(1.5, A, 0.2) for k, A in (("a", 0.8), ("b", 0.75))}
        noisy = {k: (x, y * np.exp(2e-3 * rng.normal(size=len(y)))) for k, (x, y) in curves.items()}
        found = floor_interval(noisy)
        held.append(found.contains(1.5))
        widths.append(found.high - found.low)
    assert np.mean(held) >= 0.9 and np.mean(widths) < 0.6


def test_five_sizes_do_not_exclude_that_there_is_no_floor():
    found = floor_interval(table2())
    assert found.low == 0 and found.value > 0.5 and 1.3 < found.high < 1.693


def test_a_floor_that_the_points_do_not_give_is_refused():
    with pytest.raises(Refusal, match="ran to zero") as error:
        fit_floors({"a": curve(0.0, 2.0, 0.05)}, "free")
    assert error.value.code == "floor-at-bound"


def test_one_bad_point_is_outvoted():
    x, y = curve(1.5, 0.8, 0.15)
    y = y.copy()
    y[3] *= 1.2
    law = fit_floors({"a": (x, y)}, 1.5, objective=LeastAbsolute()).laws["a"]
    assert law.alpha == pytest.approx(0.15, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"floor": 5.0}, "floor-too-high"),
        ({"floor": -0.1}, "floor-too-high"),
        ({"floor": "none"}, "bad-option"),
        ({"exponent": "both"}, "bad-option"),
    ],
)
def test_refusals(arguments, code):
    with pytest.raises(Refusal) as error:
        fit_floors({"a": curve(1.5, 0.8, 0.15)}, **arguments)
    assert error.value.code == code


def test_three_points_do_not_give_three_parameters():
    with pytest.raises(Refusal, match="3 points are given for 3 parameters"):
        fit_floors({"a": curve(1.5, 0.8, 0.15, C[:3])}, "free")


def test_a_loss_below_the_baselines_floor_has_no_multiplier():
    fits = fit_floors({"a": curve(1.5, 0.8, 0.15), "b": curve(1.2, 0.6, 0.15)}, "free")
    assert fits.multiplier("b", "a", 1.0) < 1
    with pytest.raises(Refusal, match="at or below the floor of 'a'") as error:
        fits.multiplier("a", "b", 1e4)
    assert error.value.code == "below-floor"
    flat = FloorLaw("a", 0.0, 2.0, -0.01, 1.0, 2.0, 0.0)
    with pytest.raises(Refusal, match="does not fall"):
        replace(fits, laws={"a": flat, "b": fits.laws["b"]}).multiplier("a", "b", 1.0)
