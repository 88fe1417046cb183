import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_studies import study

from analysis import Refusal, fit, load
from analysis.stats import t_quantile


@settings(max_examples=40, deadline=None)
@given(st.floats(0.5, 20), st.floats(0.01, 0.5), st.floats(-9, 3))
def test_recovers_a_noiseless_law_at_any_scale(A, alpha, log10_compute):
    compute = 10**log10_compute * np.array([1, 2.5, 7, 30])
    law = fit(study({"x": 1.0}, A=A, alpha=alpha, compute=compute)).laws["x"]
    assert law.A.value == pytest.approx(A, rel=1e-9)
    assert law.alpha.value == pytest.approx(alpha, rel=1e-9)
    assert np.allclose(law.residuals, 0, atol=1e-10)


def test_agrees_with_least_squares_on_the_design_matrix():
    rng = np.random.default_rng(3)
    df = study({"x": 1.0}, noise=rng.normal(0, 0.01, (1, 5, 1)))
    law = fit(df, at=3.0).laws["x"]
    x, y = np.log(df["pflops_days"].to_numpy()), np.log(df["loss"].to_numpy())
    design = np.stack([np.ones(5), -x], axis=1)
    beta, rss, *_ = np.linalg.lstsq(design, y, rcond=None)
    cov = rss[0] / 3 * np.linalg.inv(design.T @ design)
    t = 3.182446305284263  # 97.5% point of Student's t with 3 degrees of freedom, from tables
    assert law.A.value == pytest.approx(np.exp(beta[0]))
    assert law.A.high == pytest.approx(np.exp(beta[0] + t * cov[0, 0] ** 0.5))
    assert law.alpha.low == pytest.approx(beta[1] - t * cov[1, 1] ** 0.5)
    at = np.array([1, -np.log(3.0)])
    assert law.loss_at.value == pytest.approx(np.exp(at @ beta))
    assert law.loss_at.high == pytest.approx(np.exp(at @ beta + t * (at @ cov @ at) ** 0.5))
    assert law.r2 == pytest.approx(1 - rss[0] / ((y - y.mean()) ** 2).sum())
    loss, low, high = law.predict([3.0])
    assert (loss[0], low[0], high[0]) == pytest.approx(
        (law.loss_at.value, law.loss_at.low, law.loss_at.high)
    )


def test_copies_of_a_seed_do_not_narrow_the_interval():
    noise = np.random.default_rng(0).normal(0, 0.01, (1, 5, 1))
    one = fit(study({"x": 1.0}, noise=noise)).laws["x"]
    six = fit(study({"x": 1.0}, noise=np.repeat(noise, 6, axis=2), seeds=6)).laws["x"]
    assert (six.n_runs, six.n_sizes) == (30, 5)
    assert six.alpha.low == pytest.approx(one.alpha.low)
    assert six.A.high == pytest.approx(one.A.high)


def test_shared_exponent_agrees_with_one_regression_with_an_intercept_a_variant():
    rng = np.random.default_rng(1)
    df = study({"prenorm": 1, "x": 1.3, "y": 0.8}, noise=rng.normal(0, 0.01, (3, 5, 1)))
    shared = fit(df).shared
    x, y = np.log(df["pflops_days"].to_numpy()), np.log(df["loss"].to_numpy())
    names = df["variant"].unique()
    design = np.column_stack([*(df["variant"] == v for v in names), -x]).astype(float)
    beta = np.linalg.lstsq(design, y, rcond=None)[0]
    assert shared.alpha.value == pytest.approx(beta[-1])
    assert [shared.A[v].value for v in names] == pytest.approx(np.exp(beta[:3]))


def test_shared_exponent_is_not_better_known_for_having_a_copy():
    noise = np.random.default_rng(1).normal(0, 0.01, (1, 5, 1))
    noise = np.concatenate([noise, noise])
    fits = fit(study({"prenorm": 1, "x": 1.3}, noise=noise))
    alone = fits.laws["prenorm"].alpha
    assert fits.shared.alpha.low == pytest.approx(alone.low)


def test_alpha_interval_covers_the_truth():
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(200):
        df = study({"x": 1.0}, noise=rng.normal(0, 0.01, (1, 4, 1)), compute=np.array([1, 2, 4, 8]))
        hits += fit(df).laws["x"].alpha.contains(0.06)
    assert 178 <= hits <= 199  # 190 expected, binomial SD 3.1


def test_to_dict_survives_json():
    fits = fit(load("attnres_table2"))
    again = json.loads(json.dumps(fits.to_dict(), allow_nan=False))
    assert again["laws"]["prenorm"]["alpha"]["value"] == fits.laws["prenorm"].alpha.value
    assert again["baseline"] == "prenorm"
    assert again["flops_convention"] == "6nd + attention"


def test_t_quantile_against_tables():
    assert t_quantile(0.95, 4) == pytest.approx(2.776445105)
    assert t_quantile(0.90, 1) == pytest.approx(6.313751515)


def test_refuses_two_sizes():
    df = study({"prenorm": 1.0, "x": 1.1}, compute=np.array([1.0, 2.0]))
    with pytest.raises(Refusal, match=r"'prenorm' has 2 sizes .*at least 3") as e:
        fit(df)
    assert e.value.code == "too-few-sizes"


def test_refuses_sizes_of_equal_compute():
    with pytest.raises(Refusal, match="same compute") as e:
        fit(study({"x": 1.0}, compute=np.ones(4)))
    assert e.value.code == "no-compute-range"


@pytest.mark.parametrize("at", [0.0, -1.0, float("nan"), float("inf")])
def test_refuses_a_reference_compute_that_is_not_positive(at):
    with pytest.raises(Refusal, match="above 0") as e:
        fit(study({"x": 1.0}), at=at)
    assert e.value.code == "bad-compute"


def test_a_table_without_a_baseline_can_be_fitted_but_a_wrong_name_is_refused():
    df = study({"x": 1.0, "y": 1.1})
    assert fit(df).baseline is None
    with pytest.raises(Refusal, match="'x', 'y'"):
        fit(df, baseline="z")


def test_refuses_a_table_that_was_not_loaded():
    with pytest.raises(Refusal, match=r"analysis\.load") as e:
        fit(study({"x": 1.0}).drop(columns="pflops_days"))
    assert e.value.code == "not-loaded"


def test_a_new_size_is_less_certain_than_the_law():
    """Textbook bands of a line in logs: 1/n + ... for the law, 1 + 1/n + ... for a point."""
    noise = np.random.default_rng(0).normal(0, 0.003, (1, 6, 1))
    df = study({"prenorm": 1.0}, noise=noise, compute=np.geomspace(0.5, 20, 6))
    law = fit(df).laws["prenorm"]
    x, y = np.log(df["pflops_days"].to_numpy()), np.log(df["loss"].to_numpy())
    residual = y - np.polyval(np.polyfit(x, y, 1), x)
    s2, at = residual @ residual / 4, np.log(50.0)
    leverage = 1 / 6 + (at - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum()
    for new_size in (False, True):
        value, low, high = law.predict(50.0, new_size)
        half = t_quantile(0.95, 4) * np.sqrt(s2 * (leverage + new_size))
        assert np.log([low / value, high / value]) == pytest.approx([-half, half])
