"""The committed coverage of the intervals, and its first studies again."""

import json

from analysis import coverage


def test_the_committed_study_is_within_what_is_promised():
    stored = json.loads(coverage.OUT.read_text(encoding="utf-8"))
    assert stored["n_studies"] == 2000
    for name in ("alpha", "multiplier"):
        assert 0.93 <= stored["coverage"][name] <= 0.97
    width = stored["median_width_of_ln_multiplier"]
    assert width["multiplier"] < width["naive multiplier"]


def test_the_first_studies_again():
    """What was committed is what this code finds."""
    stored = json.loads(coverage.OUT.read_text(encoding="utf-8"))["first_studies"]
    assert coverage.coverage(stored["n_studies"], seed=0)["coverage"] == stored["coverage"]


def test_where_there_is_a_floor():
    """The power law's exponent is another; its multiplier, and what knows of the floor, hold."""
    stored = json.loads(coverage.OUT.read_text(encoding="utf-8"))["with_floors"]
    held = stored["coverage"]
    assert stored["n_studies"] == 2000 and held["alpha of a power law"] < 0.1
    for name in ("multiplier", "multiplier, shared floor", "E", "alpha"):
        assert held[name] >= 0.93, name
    assert coverage.coverage_with_floors(20, seed=0)["coverage"] == stored["first_studies"]
