"""From a CSV file of any dialect to a multiplier: what must not depend on how it was written."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_studies import FLOP

from analysis import Refusal, fit, gap, load, multiplier
from analysis.report import report

studies = st.fixed_dictionaries({
    "A": st.floats(1.5, 4), "alpha": st.floats(0.04, 0.2), "m": st.floats(0.7, 1.6),
    "decades": st.floats(1, 3), "n_sizes": st.integers(3, 7), "n_seeds": st.integers(1, 3),
    "noise": st.floats(1e-5, 2e-3), "seed": st.integers(0, 10_000),
})  # fmt: skip


def table(A, alpha, m, decades, n_sizes, n_seeds, noise, seed) -> pd.DataFrame:
    """Columns variant, size, seed, val_loss, pflops_days; three variants."""
    rng, rows = np.random.default_rng(seed), []
    common = noise * rng.normal(size=(n_sizes, n_seeds))
    for variant, factor in (("prenorm", 1.0), ("attnres_block", m), ("attnres_full", 1.1 * m)):
        for i, C in enumerate(0.1 * 10 ** np.linspace(0, decades, n_sizes)):
            for s in range(n_seeds):
                e = common[i, s] + noise * rng.normal()
                rows.append((variant, f"S{i}", s, A * (factor * C) ** -alpha * np.exp(e), C))
    columns = ["variant", "size", "seed", "val_loss", "pflops_days"]
    return pd.DataFrame(rows, columns=columns)


def answer(df: pd.DataFrame) -> list[float]:
    """Laws, multiplier and gap, with their intervals; or why there is none."""
    law = fit(df).laws["prenorm"]
    numbers = [law.alpha.value, law.alpha.low, law.alpha.high]
    try:
        m = multiplier(df, "attnres_block")
        numbers += [m.shared.value, m.shared.low, m.shared.high, m.separate.low, m.separate.high]
    except Refusal as refusal:
        assert refusal.code in ("no-usable-slope", "curves-cross", "out-of-range")
    g = gap(df)
    return [*numbers, g.pooled.value, g.pooled.low, g.pooled.high]


@settings(max_examples=40, deadline=None)
@given(studies, st.randoms(use_true_random=False), st.sampled_from(",;\t"), st.booleans(),
       st.booleans(), st.booleans())  # fmt: skip
def test_dialects_units_and_orders_change_nothing(study, random, delimiter, bom, flops, commented):
    """Separator, decimal comma, byte-order mark, unit of compute, order of rows and columns."""
    frame = table(**study)
    expected = answer(load(frame))
    if flops:
        frame["train_flops"] = frame.pop("pflops_days") * FLOP
    rows, columns = list(frame.index), list(frame.columns)
    random.shuffle(rows)
    random.shuffle(columns)
    frame = frame.loc[rows, columns]
    # The order of appearance is that of the report; the first row decides nothing else.
    decimal = "," if delimiter == ";" else "."
    text = frame.to_csv(sep=delimiter, decimal=decimal, index=False, lineterminator="\r\n")
    text = ("# a comment\n" if commented else "") + text
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        path.write_bytes(text.encode("utf-8-sig" if bom else "utf-8"))
        assert answer(load(path)) == pytest.approx(expected, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(studies, st.floats(0.2, 5), st.floats(-6, 3))
def test_units_of_loss_and_compute_cancel_in_a_multiplier(study, k, log10):
    frame = table(**study)
    scaled = frame.assign(
        val_loss=frame["val_loss"] * k, pflops_days=frame["pflops_days"] * 10**log10
    )
    before, after = answer(load(frame)), answer(load(scaled))
    assert after[:-3] == pytest.approx(before[:-3], rel=1e-6)
    assert after[-3:] == pytest.approx([k * v for v in before[-3:]], rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(studies)
def test_the_other_way_round_it_is_the_inverse(study):
    """With one exponent: prenorm against the variant is one over the variant against prenorm."""
    df = load(table(**study))
    try:
        there = multiplier(df, "attnres_full", "prenorm").shared
        back = multiplier(df, "prenorm", "attnres_full").shared
    except Refusal:
        return
    assert (there.value, there.low, there.high) == pytest.approx(
        (1 / back.value, 1 / back.high, 1 / back.low), rel=1e-9
    )


@settings(max_examples=25, deadline=None)
@given(studies)
def test_a_run_twice_is_refused_and_one_that_failed_changes_nothing(study):
    frame = table(**study)
    with pytest.raises(Refusal) as error:
        load(pd.concat([frame, frame.iloc[[0]]]))
    assert error.value.code == "duplicate-cells"
    failed = frame.iloc[[0]].assign(size="S9", val_loss=np.nan)
    both = pd.concat([frame.assign(status="done"), failed.assign(status="failed")])
    assert answer(load(both)) == answer(load(frame))
    assert load(both).attrs["excluded"] == {"failed": 1}


@settings(max_examples=10, deadline=None)
@given(studies)
def test_every_report_is_finite_or_says_why_not(study):
    df = load(table(**study))
    found = report(df, n_resamples=200)
    json.dumps(found.to_dict(), allow_nan=False)
    assert {m.variant for m in found.multipliers} | set(found.refusals) == {
        "attnres_block", "attnres_full",
    }  # fmt: skip
    for m in found.multipliers:
        assert 0 < m.shared.low <= m.shared.value <= m.shared.high < np.inf
    for r in found.robustness:
        assert all((f.multiplier is None) == (f.refused is not None) for f in r.floors)
