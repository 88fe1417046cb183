"""The committed coverage of the intervals, and a small part of it again."""

import json

import pytest

from analysis import coverage


def test_the_committed_study_is_within_what_is_promised():
    stored = json.loads(coverage.OUT.read_text(encoding="utf-8"))
    assert stored["n_studies"] == 2000
    for name in ("alpha", "multiplier"):
        assert 0.93 <= stored["coverage"][name] <= 0.97
    width = stored["median_width_of_ln_multiplier"]
    assert width["multiplier"] < width["naive multiplier"]


def test_a_part_of_it_again():
    found = coverage.coverage(150, seed=1)
    for name in ("alpha", "multiplier"):
        assert found["coverage"][name] == pytest.approx(0.95, abs=3.5 * (0.05 * 0.95 / 150) ** 0.5)
