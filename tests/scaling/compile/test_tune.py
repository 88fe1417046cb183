"""The search over micro-batches and recomputation, with a compiler made of arithmetic."""

import pytest

from scaling.compile.tune import candidates, tune_cell

HBM = 100


def fake(needs: dict[str, float], seconds: dict[str, float]):
    """A compiler whose programs need `needs[remat]` / accumulate of memory, and its calls."""
    calls = []

    def build(cell, devices):
        accumulate, remat = cell.train.accumulate, cell.model.remat
        calls.append((accumulate, remat))
        peak = needs[remat] / accumulate
        return {"accumulate": accumulate, "remat": remat, "fits": peak <= HBM, "flops": 1.0,
                "bytes": 1.0, "seconds": seconds[remat] + accumulate / 1000, "compile_seconds": 1.0,
                "memory": {"peak": peak}}  # fmt: skip

    return build, calls


SECONDS = {"none": 1.0, "layer": 1.3, "block": 1.4}


def tune(make_cell, needs):
    build, calls = fake(needs, SECONDS)
    best, tried = tune_cell(make_cell(batch_size=8), [None], lambda text: None, build)
    return best, tried, calls


def test_what_fits_as_it_is_needs_one_compile(make_cell):
    best, tried, calls = tune(make_cell, {"none": 90, "layer": 50, "block": 20})
    assert calls == [(1, "none")]
    assert tried["settings"] == ["train.accumulate=1", "model.remat=none"]
    assert best["fits"]


def test_smaller_micro_batches_beat_recomputing_where_they_are_faster(make_cell):
    _, tried, calls = tune(make_cell, {"none": 300, "layer": 90, "block": 50})
    assert calls == [(1, "none"), (1, "layer"), (1, "block"), (2, "none"), (4, "none")]
    assert tried["settings"] == ["train.accumulate=4", "model.remat=none"]


def test_nothing_fits(make_cell):
    best, tried, _ = tune(make_cell, dict.fromkeys(SECONDS, 10_000))
    assert tried["settings"] is None
    assert best["accumulate"] == 8
    assert len(tried["tried"]) == 12


@pytest.mark.parametrize(("devices", "expected"), [(1, [1, 2, 4, 8]), (2, [1, 2, 4]), (8, [1])])
def test_micro_batches_still_split_over_the_devices(make_cell, devices, expected):
    found = candidates(make_cell(batch_size=8), devices)
    assert sorted({accumulate for accumulate, _ in found}) == expected
