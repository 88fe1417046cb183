"""Multipliers under floors: their values by inversion, their intervals by moving the points."""

import numpy as np
import pytest
from delta import paired_standard_error

from analysis import Refusal, load, multiplier
from analysis.cells import pair
from analysis.floor import fit_floors
from analysis.floor_multiplier import under_own_floors, under_pinned_floor, under_shared_floor
from analysis.floor_profile import floor_interval, require_identified
from analysis.stats import t_quantile


def curves_of(df, base="prenorm", variant="hc"):
    pairs = pair(df, [base, variant])
    return {v: (np.exp(pairs.ln_compute[v]), np.exp(pairs.ln_loss(v))) for v in (base, variant)}


def floored(E: float, m: float = 1.3, noise: float = 1e-3, n: int = 8, seed: int = 0):
    """L = E + (m C)^-0.2 with noise that both share, and noise of their own."""
    rng, C = np.random.default_rng(seed), np.geomspace(0.1, 100, n)
    common = noise * rng.normal(size=n)
    return {
        name: (C, (E + (f * C) ** -0.2) * np.exp(common + noise * rng.normal(size=n)))
        for name, f in (("prenorm", 1.0), ("hc", m))
    }


def half_width(e) -> float:
    return float(np.log(e.high / e.low)) / 2


def test_without_a_floor_it_is_the_multiplier_of_two_power_laws():
    df = load("attnres_table2")
    curves = curves_of(df, variant="attnres_block")
    for at in (0.7, 5.26, 50.0):
        expected = multiplier(df, "attnres_block", at=at).separate
        found = under_pinned_floor(curves, "prenorm", "attnres_block", 0.0, at)
        assert vars(found) == pytest.approx(vars(expected), rel=1e-7)


@pytest.mark.parametrize("floor", [0.9, "free"])
def test_the_interval_is_that_of_points_moved_one_by_one(floor):
    curves, at = floored(1.2), 30.0
    names = tuple(curves)
    if floor == "free":
        found = under_own_floors(curves, *names, at)
    else:
        found = under_pinned_floor(curves, *names, floor, at)
    C = curves["prenorm"][0]

    def ln_m(y: np.ndarray) -> float:
        moved = {name: (C, np.exp(y[i])) for i, name in enumerate(names)}
        return np.log(fit_floors(moved, floor).multiplier(*names, at))

    y = np.log(np.stack([L for _, L in curves.values()]))
    fits = fit_floors(curves, floor)
    residuals = y - np.log(np.stack([fits.laws[name].predict(C) for name in names]))
    dof = 8 - (3 if floor == "free" else 2)
    se = paired_standard_error(ln_m, y, residuals, dof)
    assert found.value == pytest.approx(np.exp(ln_m(y)), rel=1e-6)
    # Fits minimise sums of squares of a law that is not linear: its curvature moves the SE by
    # a share of the order of the residuals.
    assert half_width(found) == pytest.approx(t_quantile(0.95, dof) * se, rel=0.01)


def test_an_exact_law_has_its_multiplier_under_its_floor_only():
    curves = floored(1.2, noise=0.0)
    for at in (0.1, 3.0, 100.0):
        assert under_pinned_floor(curves, "prenorm", "hc", 1.2, at).value == pytest.approx(1.3)
    assert under_pinned_floor(curves, "prenorm", "hc", 0.0, 100.0).value != pytest.approx(1.3, 0.02)


def test_an_unknown_floor_widens_the_interval():
    held = []
    for seed in range(10):
        curves = floored(1.2, noise=2e-3, seed=seed)
        found = under_shared_floor(curves, "prenorm", "hc", 100.0)
        pinned = under_pinned_floor(curves, "prenorm", "hc", found.E.value, 100.0)
        assert found.multiplier.value == pinned.value
        assert found.multiplier.low <= pinned.low and found.multiplier.high >= pinned.high
        held.append(found.multiplier.contains(1.3) and found.E.contains(1.2))
    assert sum(held) >= 8


def test_a_floor_that_is_not_told_from_zero():
    curves = curves_of(load("attnres_table2"), variant="attnres_block")
    with pytest.raises(Refusal, match="do not tell it from zero") as error:
        under_own_floors(curves, "prenorm", "attnres_block", 5.0)
    assert error.value.code == "floor-unidentified"
    require_identified(floored(1.2, noise=1e-4))


def test_residuals_that_go_together_widen_the_floors_interval():
    """The same points as two curves say no more of the floor than one of them."""
    (C, L), _ = floored(1.2).values()
    once, twice = floor_interval({"a": (C, L)}), floor_interval({"a": (C, L), "b": (C, 0.99 * L)})
    assert (twice.high - twice.low) > 0.8 * (once.high - once.low)


def test_curves_of_different_sizes_have_a_floor_too():
    curves = floored(1.2)
    C, L = curves["hc"]
    assert floor_interval(curves | {"hc": (C[:-1], L[:-1])}).contains(1.2)


def test_weights_are_repeated_points():
    (C, L), _ = floored(1.2, noise=5e-3).values()
    weights = np.array([1, 2, 1, 1, 3, 1, 1, 1])
    weighted = fit_floors({"a": (C, L)}, "free", weights={"a": weights}).laws["a"]
    again = {"a": (np.repeat(C, weights), np.repeat(L, weights))}
    repeated = fit_floors(again, "free").laws["a"]
    assert (weighted.E, weighted.alpha) == pytest.approx((repeated.E, repeated.alpha), rel=1e-5)
    for bad in ({"a": weights[1:]}, {"a": -weights}, {}):
        with pytest.raises(Refusal, match="8 weights"):
            fit_floors({"a": (C, L)}, weights=bad)


def test_at_a_loss_it_is_compared_where_the_floored_law_has_that_loss():
    curves = floored(1.2, noise=1e-3)
    fits = fit_floors(curves, 1.2)
    for loss in (1.7, 1.5):
        b, v = (fits.laws[name].compute(loss) for name in ("prenorm", "hc"))
        found = under_pinned_floor(curves, "prenorm", "hc", 1.2, 1.0, at_loss=loss)
        assert found.value == pytest.approx(b / v, rel=1e-6)
    with pytest.raises(Refusal, match=r"No compute brings 'hc' to 1\.1 nats") as error:
        under_pinned_floor(curves, "prenorm", "hc", 1.2, 1.0, at_loss=1.1)
    assert error.value.code == "below-floor"


def test_losses_that_do_not_change_determine_no_floor():
    C, L = floored(1.2)["hc"]
    with pytest.raises(Refusal, match="determine no floor"):
        fit_floors({"a": (C, np.full_like(L, 2.0))}, "free")
