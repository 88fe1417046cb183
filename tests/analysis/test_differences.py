"""Losses at equal size against the baseline's, on studies whose noise is known."""

import numpy as np
import pytest
from made_up_studies import study

from analysis import differences, render


def test_noise_that_seeds_share_cancels():
    rng = np.random.default_rng(0)
    shared = np.broadcast_to(rng.normal(0, 0.05, (1, 2, 3)), (2, 2, 3))
    df = study({"prenorm": 1.0, "hc": 1.2}, compute=np.array([1.0, 4.0]), noise=shared, seeds=3)
    rows = [row for row in differences(df, "prenorm") if row.variant == "hc"]
    for row, c in zip(rows, (1.0, 4.0), strict=True):
        factor = 1.9 * c**-0.06 * (1.2**-0.06 - 1)
        expected = factor * np.exp(shared[0, rows.index(row)]).mean()
        assert row.difference == pytest.approx(expected, rel=1e-12)
        assert row.interval.high < 0 and row.n_seeds == 3


def test_the_interval_is_a_t_interval_of_the_paired_differences():
    noise = np.random.default_rng(1).normal(0, 0.01, (2, 1, 3))
    df = study({"prenorm": 1.0, "hc": 1.0}, compute=np.array([1.0]), noise=noise, seeds=3)
    (row,) = [row for row in differences(df, "prenorm", level=0.9) if row.variant == "hc"]
    d = 1.9 * (np.exp(noise[1, 0]) - np.exp(noise[0, 0]))
    half = 2.919985580 * d.std(ddof=1) / 3**0.5  # t, 2 degrees of freedom, two-sided 90%
    assert row.interval.low == pytest.approx(d.mean() - half, rel=1e-8)


def test_the_best_of_a_size_comes_first_and_text_says_what_the_brackets_are():
    df = study({"prenorm": 1.0, "hc": 1.5, "keel": 0.5}, seeds=2)
    rows = differences(df, "prenorm")
    assert [row.variant for row in rows[:3]] == ["hc", "prenorm", "keel"]
    assert [row.size for row in rows[::3]] == [f"S{i}" for i in range(5)]
    text = render.difference_rows(rows, "prenorm")
    assert text[1]["minus prenorm (nats)"] == "" and "[" in text[0]["minus prenorm (nats)"]
    assert "of 10, about 0.5 miss" in " ".join(render.difference_notes(rows, df, "prenorm", 0.95))


def test_without_partners_there_is_no_difference():
    df = study({"prenorm": 1.0, "hc": 1.5})
    lonely = df[(df["variant"] == "hc") | (df["size"] == "S0")]
    rows = [row for row in differences(lonely, "prenorm") if row.variant == "hc"]
    assert [row.difference is None for row in rows] == [False, True, True, True, True]
    assert all(row.interval is None for row in rows)  # one seed
    assert "One paired seed" in " ".join(render.difference_notes(rows, df, "prenorm", 0.95))


def test_seeds_that_differ_are_averaged_and_it_is_said():
    df = study({"prenorm": 1.0, "hc": 1.2}, seeds=4)
    df = df[(df["variant"] == "prenorm") == (df["seed"] < 2)]
    rows = [row for row in differences(df, "prenorm") if row.variant == "hc"]
    assert all(row.n_paired == 0 and row.n_seeds == 2 and not row.interval for row in rows)
    assert "share no seed" in " ".join(render.difference_notes(rows, df, "prenorm", 0.95))


def test_without_the_baseline_there_are_losses():
    df = study({"hc": 1.0, "keel": 1.1})
    rows = differences(df, "prenorm")
    assert len(rows) == 10 and all(row.difference is None for row in rows)
    assert "no differences" in " ".join(render.difference_notes(rows, df, "prenorm", 0.95))
