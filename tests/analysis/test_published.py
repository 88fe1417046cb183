"""Published numbers, and re-analyses of them, that this package must reproduce."""

import numpy as np
import pytest
from shared_data import read

from analysis import Refusal, fit, gap, load, multiplier
from analysis.coefficients import printed_multipliers
from analysis.multiplier import multiplier_from_coefficients, rounding_box


def rounded(values, digits):
    return [round(v, digits) for v in values]


def test_table2_power_laws_under_6nd():
    laws = fit(load("attnres_table2_6nd")).laws
    got = {v: (round(law.A.value, 4), round(law.alpha.value, 4)) for v, law in laws.items()}
    assert got["prenorm"] == (1.8622, 0.0549)
    assert got["attnres_block"] == (1.8411, 0.0565)
    assert got["attnres_full"] == (1.8354, 0.0558)
    assert round(laws["mhc_lite"].A.value, 3) == 1.838


def test_table2_power_laws_with_attention_flops():
    laws = fit(load("attnres_table2")).laws
    assert round(laws["prenorm"].A.value, 4) == 1.8863
    assert rounded([law.alpha.value for law in laws.values()][:3], 4) == [0.0565, 0.0581, 0.0574]
    assert laws["prenorm"].pflops_days[-1] == pytest.approx(5.26, abs=0.005)


def test_the_compute_of_table2_is_that_of_its_formula():
    """Of MLA: T H (192 + 128) forward FLOPs a token; of KDA: H (6 d^2 + 3 c d + c^2)."""
    df, plain = load("attnres_table2"), load("attnres_table2_6nd")
    N, D, L, H = (df[c] for c in ("n_params_non_embedding", "tokens", "n_blocks", "n_heads"))
    mla = 8192 * H * (192 + 128) * L / 4
    kda = H * (6 * 128**2 + 3 * 64 * 128 + 64**2) * L * 3 / 4
    np.testing.assert_allclose(df["train_flops"], D * (6.0 * N + 3 * (mla + kda)), rtol=1e-12)
    np.testing.assert_allclose(plain["train_flops"], 6.0 * N * D, rtol=1e-6)
    assert (df["loss"] == plain["loss"]).all()


@pytest.mark.parametrize(
    ("variant", "by_size", "shared", "separate"),
    [
        ("attnres_block", [1.225, 1.207, 1.215, 1.223, 1.310], (1.232, 1.180, 1.285), 1.274),
        ("attnres_full", [1.344, 1.218, 1.276, 1.340, 1.323], (1.297, 1.228, 1.369), 1.323),
    ],
)
def test_table2_multipliers_with_attention_flops(variant, by_size, shared, separate):
    m = multiplier(load("attnres_table2"), variant)
    assert rounded([s.value for s in m.by_size], 3) == by_size
    assert rounded([m.shared.value, m.shared.low, m.shared.high], 3) == list(shared)
    assert round(m.separate.value, 3) == separate


def test_table2_block_multiplier_at_its_largest_run_under_6nd():
    m = multiplier(load("attnres_table2_6nd"), "attnres_block")
    assert round(m.separate.value, 3) == 1.283
    assert m.at == pytest.approx(4.3633, abs=1e-4)
    assert m.extrapolates and "attnres_block" in m.extrapolation


def test_table2_gap():
    g = gap(load("attnres_table2"))
    assert rounded([row.gap for row in g.by_size], 6) == [0.010, 0.001, 0.005, 0.009, 0.001]
    assert g.pooled.value == pytest.approx(0.0052)
    # t(0.975, 4) * sd / sqrt(5), by hand
    assert g.pooled.high - g.pooled.value == pytest.approx(2.776445 * 0.00426615 / 5**0.5, rel=1e-5)
    assert not g.separable
    assert all(row.gap_interval is None for row in g.by_size)
    assert g.share.estimate.value == pytest.approx(0.108 / 0.134)


KIMI_LINEAR = (2.3092, 0.0536, 2.2879, 0.0527)
MUON = (2.608, 0.054, 2.506, 0.052)


@pytest.mark.parametrize(
    ("coefficients", "C", "expected"),
    [
        (KIMI_LINEAR, 1, 1.189),
        (KIMI_LINEAR, 4.3, 1.160),
        (KIMI_LINEAR, 15.1, 1.136),
        (MUON, 1, 2.09),
        (MUON, 10, 1.92),
        (MUON, 100, 1.77),
        ((1.891, 0.057, 1.870, 0.058), 5.6, 1.2538),
    ],
)
def test_multipliers_of_printed_coefficients(coefficients, C, expected):
    digits = len(str(expected).split(".")[1])
    assert multiplier_from_coefficients(*coefficients, C) == pytest.approx(
        expected, abs=0.51 * 10**-digits
    )


def test_rounding_alone_moves_the_published_multiplier():
    low, high = rounding_box(1.891, 0.057, 1.870, 0.058, 5.6)
    assert rounded([low, high], 3) == [1.203, 1.307]


def test_what_the_paper_prints_comes_with_its_table():
    found = {p.variant: p for p in printed_multipliers("attnres_table2", "prenorm")}
    assert set(found) == {"attnres_block", "attnres_full"}
    block = found["attnres_block"]
    assert rounded([block.value, block.low, block.high], 3) == [1.254, 1.203, 1.307]
    assert printed_multipliers("attnres_table2", "mhc_lite") == []
    assert printed_multipliers("runs/demo", "prenorm") == []


def test_rounding_box_encloses_random_unrounded_coefficients():
    rng = np.random.default_rng(0)
    printed = np.array([1.891, 0.057, 1.870, 0.058])
    low, high = rounding_box(*printed, 5.6)
    for draw in printed + rng.uniform(-0.0005, 0.0005, (300, 4)):
        assert low <= multiplier_from_coefficients(*draw, 5.6) <= high


@pytest.fixture
def porian():
    """IsoFLOP optima of Porian et al. 2024, arXiv 2406.19146, as a results table."""
    names = {"experiment": "variant", "loss_opt": "loss", "flops": "train_flops"}
    return read("porian_2024/optimal_pairs.csv").rename(columns=names)[list(names.values())]


TUNED, COSINE = "rw|tuned|short|const|standard|val", "rw|base|short|chinchilla|standard|val"


def test_porian_tuned_exponent(porian):
    law = fit(load(porian[porian["variant"] == TUNED])).laws[TUNED]
    assert law.n_sizes == 12
    assert round(law.alpha.value, 5) == 0.05025


def test_porian_curves_cross_so_no_single_multiplier_is_claimed(porian):
    df = load(porian[porian["variant"].isin([TUNED, COSINE])])
    with pytest.raises(Refusal, match="no single one") as error:
        multiplier(df, TUNED, baseline=COSINE)
    assert error.value.code == "curves-cross"
    m = multiplier(df, TUNED, baseline=COSINE, at=float(df["pflops_days"].max()))
    assert not m.exponent_difference.contains(0)
    assert 4e17 < m.crosses_at * 8.64e19 < 2.6e19  # 1.05x and 0.48x, point against point
    assert m.by_size[0].value > 1 > m.by_size[-1].value
    assert m.separate.high < 1  # at the largest budget, where the tuned schedule has lost


def test_porian_diverged_rows_are_refused_by_name(porian):
    with pytest.raises(Refusal, match="`loss` is nan"):
        load(porian)
