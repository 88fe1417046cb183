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
