import json

import numpy as np
import pytest
from made_up_studies import study

from analysis import Refusal, gap
from analysis.fieller import ratio_of_means

THREE = {"prenorm": 1.0, "attnres_block": 1.2, "attnres_full": 1.3}


def test_exact_without_noise():
    df = study(THREE)
    g = gap(df)
    loss = df.set_index(["variant", "size"])["loss"]
    for row in g.by_size:
        b, f, p = (loss[v, row.size] for v in ("attnres_block", "attnres_full", "prenorm"))
        assert row.gap == pytest.approx(b - f)
        assert row.share_kept == pytest.approx((p - b) / (p - f))
    assert g.pooled.value == pytest.approx(np.mean([row.gap for row in g.by_size]))
    assert g.separable


def test_no_share_of_a_gain_that_may_be_nothing():
    """A size with seeds of its own is judged by them, one with a single seed by all sizes."""
    rng = np.random.default_rng(1)
    alone = gap(study(THREE, noise=rng.normal(0, 0.05, (3, 5, 1))))
    assert alone.share.estimate is None
    assert [row.share_kept for row in alone.by_size] == [None] * 5
    noise = rng.normal(0, 1e-4, (3, 5, 2))
    noise[:, 0] *= 1000
    seeded = gap(study(THREE, noise=noise, seeds=2))
    assert [row.share_kept is None for row in seeded.by_size] == [True] + [False] * 4


def test_seed_noise_that_is_shared_cancels_in_the_intervals():
    rng = np.random.default_rng(0)
    common = np.repeat(rng.normal(0, 0.05, (1, 5, 3)), 3, axis=0)
    g = gap(study(THREE, noise=common, seeds=3))
    for row in g.by_size:
        assert row.n_seeds == 3
        # noise of 5% in the loss would make this half-width about 0.1
        assert row.gap_interval.high - row.gap_interval.low < 0.01
        assert row.gap_interval.contains(row.gap)


def test_size_interval_is_a_paired_t_over_seeds():
    noise = np.random.default_rng(0).normal(0, 0.01, (3, 4, 2))
    df = study(THREE, noise=noise, seeds=2, compute=np.array([1, 2, 4, 8.0]))
    runs = df.set_index(["variant", "size", "seed"])["loss"]
    d = [runs["attnres_block", "S0", s] - runs["attnres_full", "S0", s] for s in (0, 1)]
    interval = gap(df).by_size[0].gap_interval
    assert interval.high - interval.value == pytest.approx(12.7062047 * abs(d[0] - d[1]) / 2)


def test_one_seed_gives_no_size_interval_and_says_so():
    g = gap(study(THREE))
    assert g.by_size[0].gap_interval is None
    assert any("single seed" in note for note in g.notes)


def test_one_size_gives_no_pooled_interval():
    g = gap(study(THREE, compute=np.array([1.0]), seeds=2))
    assert g.pooled is None and not g.separable and g.share.estimate is None
    assert g.by_size[0].gap_interval is not None


def test_share_is_undefined_where_full_gains_nothing():
    noise = np.random.default_rng(3).normal(0, 0.02, (3, 5, 1))
    g = gap(study({**THREE, "attnres_full": 1.0}, noise=noise))
    assert g.share.estimate is None
    assert "'attnres_full'" in g.share.undefined_because
    assert "not separated from 0" in g.share.undefined_because


def test_fieller_ends_are_where_the_t_statistic_crosses():
    rng = np.random.default_rng(1)
    gain = rng.normal(0.03, 0.004, 5)
    kept = 0.8 * gain + rng.normal(0, 0.002, 5)
    ratio = ratio_of_means(kept, gain, 0.95, "full").estimate
    for end in (ratio.low, ratio.high):
        d = kept - end * gain
        t = d.mean() / (d.std(ddof=1) / 5**0.5)
        assert abs(t) == pytest.approx(2.7764451, rel=1e-6)


def test_fieller_covers_the_truth():
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(1000):
        gain = rng.normal(0.03, 0.005, 5)
        kept = 0.8 * 0.03 + 0.5 * (gain - 0.03) + rng.normal(0, 0.003, 5)
        hits += ratio_of_means(kept, gain, 0.95, "full").estimate.contains(0.8)
    assert 925 <= hits <= 972  # 950 expected, binomial SD 6.9


def test_sizes_that_not_all_have_are_dropped():
    df = study(THREE)
    g = gap(df[~(df["variant"].eq("prenorm") & df["size"].eq("S0"))])
    assert g.dropped_sizes == ("S0",) and len(g.by_size) == 4


def test_to_dict_survives_json():
    g = gap(study(THREE))
    assert json.loads(json.dumps(g.to_dict(), allow_nan=False))["pooled"]["value"] == g.pooled.value


def test_refusals():
    df = study(THREE)
    with pytest.raises(Refusal, match="Did you mean 'attnres_block'") as e:
        gap(df, block="attnres_blocks")
    assert e.value.code == "missing-variant"
    with pytest.raises(Refusal, match="three different variants") as e:
        gap(df, block="attnres_full")
    assert e.value.code == "same-variant"
    apart = df[df["variant"].eq("prenorm") == df["size"].eq("S0")]
    with pytest.raises(Refusal, match="no size in common") as e:
        gap(apart)
    assert e.value.code == "no-common-size"


def test_a_gap_that_grows_with_compute_has_a_trend():
    compute = np.geomspace(0.1, 10, 5)
    df = study({"prenorm": 1.0, "attnres_block": 1.1, "attnres_full": 1.2}, compute=compute)
    x = np.log10(df.loc[df["variant"] == "attnres_full", "pflops_days"].to_numpy())
    df.loc[df["variant"] == "attnres_block", "loss"] = (
        df.loc[df["variant"] == "attnres_full", "loss"].to_numpy() + 0.01 + 0.004 * x
    )
    found = gap(df)
    assert found.trend.value == pytest.approx(0.004) and not found.trend.contains(0)
    assert gap(df[df["size"].isin(["S0", "S1"])]).trend is None


def test_the_seeds_that_a_gap_needs_are_those_that_tell_it():
    """Of studies with that many seeds, about half tell the gap; one seed tells it rarely."""
    names = {"prenorm": 1.0, "attnres_block": 1.0, "attnres_full": 1.01}
    rng, compute = np.random.default_rng(4), np.geomspace(1, 8, 5)

    def run(seeds):
        noise = 0.003 * rng.normal(size=(3, 5, seeds))
        return gap(study(names, noise=noise, seeds=seeds, compute=compute))

    needed = int(np.median([g.seeds_needed for g in (run(8) for _ in range(30)) if g.seeds_needed]))
    assert 20 < needed < 200
    told = np.mean([run(needed).separable for _ in range(60)])
    assert 0.3 < told < 0.75
    assert np.mean([run(2).separable for _ in range(60)]) < 0.25


def test_seeds_do_not_help_a_gap_that_changes_with_size():
    noise = np.zeros((3, 4, 2))
    noise[1] = [[0.02], [-0.02], [0.021], [-0.018]]
    noise[1, :, 1] += 1e-4
    found = gap(study({"prenorm": 1.0, "attnres_block": 1.0, "attnres_full": 1.01}, noise=noise,
                      seeds=2, compute=np.geomspace(1, 8, 4)))  # fmt: skip
    assert found.seeds_needed is None and "add sizes" in found.seeds_needed_note


def test_one_seed_does_not_tell_the_noise_of_seeds():
    df = study({"prenorm": 1.0, "attnres_block": 1.0, "attnres_full": 1.01})
    assert "unknown" in gap(df).seeds_needed_note
