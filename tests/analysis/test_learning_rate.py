"""Best learning rates and their laws, against made-up sweeps and those of the ladders."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from analysis.errors import Refusal
from analysis.learning_rate import best_rate, rate_law

RATES = 1e-3 * 2.0 ** np.arange(6)


def sweep(best, curvature=0.05, floor=2.0):
    return {lr: floor + curvature * np.log(lr / best) ** 2 for lr in RATES}


def test_a_parabola_is_found_again():
    found = best_rate(sweep(5.3e-3))
    assert found.learning_rate == pytest.approx(5.3e-3) and found.loss == pytest.approx(2.0)
    assert found.curvature == pytest.approx(0.05)
    edge = found.learning_rate * found.tolerance
    assert 0.05 * np.log(edge / 5.3e-3) ** 2 == pytest.approx(0.01)


def test_what_is_far_away_or_diverged_has_no_say():
    losses = sweep(5.3e-3)
    losses[RATES[0]] += 3.0
    losses[RATES[-1]] = float("nan")
    assert best_rate(losses).learning_rate == pytest.approx(5.3e-3)


@pytest.mark.parametrize(
    ("losses", "code", "say"),
    [
        (sweep(1e-4), "non-interior-minimum", "add smaller"),
        (sweep(1.0), "non-interior-minimum", "add larger"),
        ({1e-3: 2.0, 2e-3: float("inf"), 4e-3: 2.1}, "too-few-points", "has 2 learning rates"),
        (dict.fromkeys(RATES, 2.0), "no-minimum", "one loss at all"),
        ({1e-4: 3.0, 1e-3: 2.0 + 1e-15, 2e-3: 2.0, 4e-3: 2.0}, "no-minimum", "about 0.002"),
        ({1e-3: 2.1, 2e-3: 2.0, 2e-3 * (1 + 1e-15): 2.1}, "no-minimum", "about 0.002"),
        ({1e-3: 2.0, float("inf"): 2.0}, "not-positive", "not finite and above 0"),
    ],
)
def test_refusals(losses, code, say):
    with pytest.raises(Refusal, match=say) as error:
        best_rate(losses)
    assert error.value.code == code


def test_the_ladders_sweeps_have_interior_minima_near_the_rates_chosen():
    ladder = Path(__file__).parents[2] / "configs" / "ladders" / "demo.yaml"
    about = yaml.safe_load(ladder.read_text(encoding="utf-8"))
    refused = set()
    for size, losses in about["learning_rate_sweep"]["prenorm"].items():
        chosen = float(about["sizes"][size]["learning_rate"])
        try:
            found = best_rate({float(lr): loss for lr, loss in losses.items()}, size)
        except Refusal as refusal:
            refused.add((size, refusal.code))
        else:
            assert 0.5 < chosen / found.learning_rate < 1.5
    assert refused == {("d32", "non-interior-minimum")}  # best at its largest rate


def test_the_next_rate_diverged():
    with pytest.raises(Refusal, match=r"0\.004, diverged; add rates between"):
        best_rate({5e-4: 2.2, 1e-3: 2.1, 2e-3: 2.0, 4e-3: float("nan")})


def test_laws_are_found_again():
    rng = np.random.default_rng(0)
    N, D = 10 ** rng.uniform(6, 9, 12), 10 ** rng.uniform(8, 11, 12)
    law = rate_law(N, D, 3.0 * N**-0.3 * D**0.1)
    assert law.exponent_of_N.value == pytest.approx(-0.3)
    assert law.exponent_of_D.value == pytest.approx(0.1)
    assert law.predict(1e8, 1e10) == pytest.approx(3.0 * 1e8**-0.3 * 1e10**0.1)


def test_a_ladder_of_constant_tokens_a_parameter_has_one_exponent():
    N = np.geomspace(1e6, 1e9, 5)
    for jitter in (1.0, np.array([0.995, 1.004, 1.0, 0.997, 1.003])):  # whole batches
        law = rate_law(N, 20 * N * jitter, 0.5 * N**-0.25)
        assert law.exponent_of_D is None and law.exponent_of_N.value == pytest.approx(-0.25)


def test_the_interval_covers_the_truth():
    rng, held = np.random.default_rng(1), []
    for _ in range(400):
        N = np.geomspace(1e6, 1e9, 6)
        noise = np.exp(0.1 * rng.normal(size=6))
        held.append(rate_law(N, 20 * N, 0.5 * N**-0.25 * noise).exponent_of_N.contains(-0.25))
    assert np.mean(held) == pytest.approx(0.95, abs=0.04)


def test_too_few_points():
    with pytest.raises(Refusal, match="2 rates are given"):
        rate_law([1e6, 1e7], [1e8, 1e9], [1e-2, 1e-3])


@pytest.mark.parametrize(
    ("N", "D", "rates", "code"),
    [
        ([1e6, 1e7, 1e8], [1e8, 1e9], [1e-2, 1e-3, 1e-4], "bad-shape"),
        ([1e6, 1e7, 1e8], [1e8, 1e9, 1e10], [1e-2, 1e-3, 0.0], "not-positive"),
        ([1e6, 1e7, -1e8], [1e8, 1e9, 1e10], [1e-2, 1e-3, 1e-4], "not-positive"),
        ([1e6, 1e7, 1e8], [1e8, float("nan"), 1e10], [1e-2, 1e-3, 1e-4], "not-positive"),
        ([], [], [], "too-few-points"),
        ([1e6, 1e6, 1e6], [1e8, 1e9, 1e10], [1e-2, 1e-3, 1e-4], "no-range"),
        ([1e6, 1.00001e6, 1.00002e6], [1e8, 1e8, 1e8], [1e-2, 1e-3, 1e-4], "out-of-range"),
    ],
)
def test_rates_that_have_no_law(N, D, rates, code):
    with pytest.raises(Refusal) as error:
        rate_law(N, D, rates)
    assert error.value.code == code
