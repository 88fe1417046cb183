"""What a design promises, against what simulated studies keep."""

from pathlib import Path

import numpy as np
import pytest
from made_up_studies import study

from analysis import multiplier, plan
from analysis.errors import Refusal
from analysis.plan import Noise, designs, expect, noise_of

NOISE = Noise(0.002, 0.0, 0.004, 0.06, "a test")
COMPUTE = {f"S{i}": float(c) for i, c in enumerate(np.geomspace(1e15, 1e17, 5))}


def noisy(rng, own, size, seeds, m=1.2, n_sizes=5):
    noise = own * rng.normal(size=(2, n_sizes, seeds)) + size * rng.normal(size=(1, n_sizes, 1))
    return study(
        {"prenorm": 1.0, "hc": m}, noise=noise, seeds=seeds, compute=np.geomspace(0.1, 10, n_sizes)
    )


def test_the_interval_is_what_studies_of_the_design_have():
    """Through the whole of `multiplier`, seed by seed."""
    rng = np.random.default_rng(1)
    studies = [multiplier(noisy(rng, 0.002, 0.004, 3), "hc").shared for _ in range(60)]
    design = expect(COMPUTE, 2, 3, NOISE, 1.2)
    width = lambda low, high: np.log(high / low)  # noqa: E731
    measured = np.median([width(m.low, m.high) for m in studies])
    assert width(design.low, design.high) == pytest.approx(measured, rel=0.15)
    told = np.mean([not m.contains(1) for m in studies])
    assert design.resolved == pytest.approx(told, abs=0.12)


@pytest.mark.parametrize(("own", "size", "seeds"), [(0.002, 0.004, 4), (0.004, 0.002, 5)])
def test_noise_is_found_again(own, size, seeds):
    rng = np.random.default_rng(2)
    found = [noise_of(noisy(rng, own, size, seeds, n_sizes=8)) for _ in range(60)]
    rms = lambda name: np.sqrt(np.mean([getattr(n, name) ** 2 for n in found]))  # noqa: E731
    assert rms("run") == pytest.approx(own, rel=0.1)
    assert rms("size") == pytest.approx(size, rel=0.15)
    assert rms("interaction") < 0.4 * own
    assert np.mean([n.alpha for n in found]) == pytest.approx(0.06, rel=0.05)


def test_lack_of_fit_is_no_noise_that_seeds_average_out():
    rng = np.random.default_rng(3)
    noise = 0.001 * rng.normal(size=(2, 8, 4)) + 0.005 * rng.normal(size=(2, 8, 1))
    df = study({"prenorm": 1.0, "hc": 1.2}, noise=noise, seeds=4, compute=np.geomspace(0.1, 10, 8))
    found = noise_of(df)
    assert found.run == pytest.approx(0.001, rel=0.3) and found.interaction > 0.003
    one, many = (expect(COMPUTE, 2, n, found) for n in (1, 50))
    assert np.log(many.high / many.low) > 0.9 * np.log(one.high / one.low)


def test_more_seeds_and_more_sizes_narrow_it():
    width = lambda d: d.high / d.low  # noqa: E731
    one, four = (expect(COMPUTE, 2, n, NOISE) for n in (1, 4))
    three = expect(dict(list(COMPUTE.items())[:3]), 2, 1, NOISE)
    assert width(four) < width(one) < width(three)
    assert four.flops == 4 * one.flops and four.n_runs == 40


def test_the_budget_is_kept_and_the_narrowest_comes_first():
    budget = 4 * sum(COMPUTE.values())
    found = designs(COMPUTE, 2, budget, NOISE)
    assert all(d.flops <= budget for d in found)
    widths = [d.high / d.low for d in found]
    assert widths == sorted(widths) and len(found) > 5


def test_refusals():
    with pytest.raises(Refusal) as error:
        designs(COMPUTE, 2, 1e15, NOISE)
    assert error.value.code == "budget-too-small"
    with pytest.raises(Refusal, match="2 sizes"):
        designs(dict(list(COMPUTE.items())[:2]), 2)
    with pytest.raises(Refusal, match="multiplier is 0"):
        expect(COMPUTE, 2, 1, NOISE, multiplier=0.0)
    with pytest.raises(Refusal, match="0 seeds"):
        expect(COMPUTE, 2, 0, NOISE)
    flat = study({"prenorm": 1.0, "hc": 1.2}, compute=np.full(5, 2.0))
    with pytest.raises(Refusal, match="same compute"):
        noise_of(flat)


@pytest.mark.parametrize(
    "option",
    [{"multiplier": m} for m in (1e300, 0.0, -1.0, float("nan"), 1e-3)]
    + [{"budget": b} for b in (float("nan"), -1.0, 0.0)],
)
def test_absurd_options_are_refused_before_anything_is_simulated(option, monkeypatch):
    monkeypatch.setattr(plan, "expect", None)
    with pytest.raises(Refusal, match=f"The {next(iter(option))} is") as error:
        designs(COMPUTE, 2, noise=NOISE, **option)
    assert error.value.code == "bad-option"


def test_the_command(tmp_path):
    """Three sizes from a study file, FLOPs that a budget allows, and lines to copy."""
    from typer.testing import CliRunner

    from scaling.cli import app

    study = Path(__file__).parents[2] / "configs" / "demo.yaml"
    result = CliRunner().invoke(app, ["plan", str(study), "--budget", "1e13"])
    assert result.exit_code == 0, result.output
    assert "expected interval" in result.stdout and "seeds: [0" in result.stdout
    assert f"scaling launch {study} --size d" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines() if str(study) not in line) <= 100
