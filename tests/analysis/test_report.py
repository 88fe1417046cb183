"""All that `scaling fit` computes, in one object."""

import json

import numpy as np
import pytest
from made_up_studies import study

from analysis import Refusal, load, multiplier
from analysis.record import plain
from analysis.report import report


def test_table2_as_a_reviewer_would_have_it():
    found = report(load("attnres_table2"))
    block = next(m for m in found.multipliers if m.variant == "attnres_block")
    assert (round(block.shared.value, 2), round(block.shared.low, 2)) == (1.23, 1.18)
    assert [round(s.value, 2) for s in block.by_size] == [1.22, 1.21, 1.21, 1.22, 1.31]
    printed = {p.variant: p for p in found.printed}["attnres_block"]
    assert (round(printed.low, 2), round(printed.high, 2)) == (1.20, 1.31)
    together = found.together["attnres_block"]
    assert together.low < block.shared.low and together.high > block.shared.high
    assert found.bootstraps["attnres_block"].n_resamples == 10_000
    assert found.forms == [] and found.holdout is None
    json.dumps(found.to_dict(), allow_nan=False)  # plain numbers


def test_what_is_asked_for():
    df = study({"prenorm": 1.0, "hc": 1.2}, noise=np.zeros((2, 5, 1)))
    found = report(df, n_held_out=1, n_resamples=0, with_forms=True)
    assert found.bootstraps == {} and found.holdout.n_held_out == 1 and found.forms
    at = report(df, at_loss=1.8, n_resamples=0).multipliers[0]
    assert at.at_loss == pytest.approx(1.8)
    assert at.separate == multiplier(df, "hc", at_loss=1.8).separate


def test_curves_that_cross_are_refused_and_at_one_compute_are_not():
    alphas = {"prenorm": 0.05, "hc": 0.08, "mhc": 0.05}
    noise = np.random.default_rng(0).normal(0, 2e-4, (3, 5, 1))
    df = study(
        dict.fromkeys(alphas, 1.0), alphas=alphas, compute=np.geomspace(0.1, 10, 5), noise=noise
    )
    found = report(df)
    assert found.refusals["hc"].code == "curves-cross"
    assert [m.variant for m in found.multipliers] == ["mhc"]
    asked = report(df, at=5.0)
    assert asked.refusals == {} and asked.multipliers[0].crosses_at == pytest.approx(1, rel=0.1)
    assert "hc" not in asked.together and "hc" not in asked.bootstraps
    assert asked.robustness[0].left_out == {} and asked.robustness[0].huber is None


def test_one_noisy_variant_does_not_keep_the_others_from_being_reported():
    """Joint intervals are wider, and never a reason to refuse what a single one allows."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        names = {"prenorm": 1.0, "a": 1.1, "b": 1.2, "c": 1.3}
        noise = 0.01 * rng.normal(size=(4, 4, 1))
        df = study(names, noise=noise, compute=np.geomspace(0.5, 20, 4))
        found = report(df, n_resamples=0)
        assert set(found.together) == {m.variant for m in found.multipliers}
        json.dumps(found.to_dict(), allow_nan=False)


def test_the_seed_is_that_of_everything_resampled():
    noise = np.random.default_rng(0).normal(0, 0.003, (2, 5, 1))
    df = study({"prenorm": 1.0, "hc": 1.2}, noise=noise)
    first, again, other = (report(df, seed=s, n_resamples=200) for s in (1, 1, 2))
    assert first.to_dict() == again.to_dict()
    assert first.robustness[0].huber.low != other.robustness[0].huber.low
    assert first.bootstraps["hc"].parametric != other.bootstraps["hc"].parametric


def test_numbers_that_json_lacks_are_null():
    compute = np.array([1.0, 1.01, 1.02])  # A, at C = 1, is beyond all floats
    noise = np.random.default_rng(0).normal(0, 0.01, (2, 3, 1))
    df = study({"prenorm": 1.0, "hc": 1.2}, compute=1e-9 * compute, noise=noise)
    json.dumps(plain(report(df, n_resamples=0).to_dict()), allow_nan=False)


def test_what_cannot_be_asked_is_refused_whatever_the_table():
    for options in ({"at": 1.0, "at_loss": 2.0}, {"at_loss": -1.0}, {"at": 0.0}):
        with pytest.raises(Refusal):
            report(study({"prenorm": 1.0}), **options)


def test_the_clock_compares_runs_of_one_machine_only():
    noise = np.random.default_rng(0).normal(0, 0.002, (2, 5, 1))
    df = study({"prenorm": 1.0, "hc": 1.2}, noise=noise)
    df["train_seconds"], df["device_kind"] = df["train_flops"] / 1e12, "A100"
    assert report(df, n_resamples=0).robustness[0].wall_clock is not None
    df.loc[df["variant"] == "hc", "device_kind"] = "H100"
    assert report(df, n_resamples=0).robustness[0].wall_clock is None
