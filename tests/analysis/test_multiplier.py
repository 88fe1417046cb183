import json

import numpy as np
import pandas as pd
import pytest
from delta import paired_standard_error
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_studies import study

from analysis import Refusal, load, multiplier, robustness
from analysis.bootstrap import bootstraps
from analysis.cells import seed_weights
from analysis.coefficients import multiplier_from_coefficients
from analysis.multiplier_curve import multiplier_curve
from analysis.shift import separate_exponents_shift, shared_exponent_shift
from analysis.simultaneous import simultaneous
from analysis.stats import t_quantile


@settings(max_examples=40, deadline=None)
@given(st.floats(0.3, 4), st.floats(0.02, 0.4), st.floats(1, 1.3), st.floats(-8, 3))
def test_exact_on_noiseless_laws_of_equal_exponent(m, alpha, overhead, log10_compute):
    """Also where the variant costs more FLOPs at a size: the overhead counts against it."""
    compute = 10**log10_compute * np.array([1, 3, 8, 20])
    df = study({"prenorm": 1, "x": m}, alpha=alpha, compute=compute, overhead={"x": overhead})
    result = multiplier(df, "x")
    for value in (result.shared, result.separate):
        assert value.value == pytest.approx(m, rel=1e-8)
        assert (value.low, value.high) == pytest.approx((m, m), rel=1e-6)
    assert [s.value for s in result.by_size] == pytest.approx([m] * 4, rel=1e-8)


def test_separate_exponents_agree_with_the_coefficients():
    df = study({"prenorm": 1, "x": 1.2}, alphas={"prenorm": 0.05, "x": 0.06}, A=2.0)
    for C in (0.5, 2, 30):
        expected = multiplier_from_coefficients(2.0, 0.05, 2.0 * 1.2**-0.06, 0.06, C)
        assert multiplier(df, "x", at=C).separate.value == pytest.approx(expected)
    assert multiplier(df, "x").exponent_difference.value == pytest.approx(0.01)


def noise_orthogonal_to_the_line(n_sizes=5, scale=0.02):
    """Departures from a power law that change neither its level nor its slope."""
    x = np.linspace(0, 1, n_sizes)
    design = np.stack([np.ones(n_sizes), x], axis=1)
    e = np.random.default_rng(2).normal(0, scale, n_sizes)
    return e - design @ np.linalg.lstsq(design, e, rcond=None)[0]


def test_noise_shared_by_a_size_cancels():
    """Ten times the seed noise, common to both runs of a size: no change in the value, and hardly
    any in the interval."""
    own = np.random.default_rng(4).normal(0, 0.001, (2, 5, 1))
    common = noise_orthogonal_to_the_line()[None, :, None]
    quiet = multiplier(study({"prenorm": 1, "x": 1.2}, noise=own), "x")
    loud = multiplier(study({"prenorm": 1, "x": 1.2}, noise=own + common), "x")
    assert loud.shared.value == pytest.approx(quiet.shared.value, rel=1e-9)
    assert loud.separate.value == pytest.approx(quiet.separate.value, rel=1e-9)
    assert loud.exponent_difference.low == pytest.approx(quiet.exponent_difference.low)
    width = [np.log(m.shared.high / m.shared.low) for m in (quiet, loud)]
    unpaired = 2 * 2.78 * np.hypot(0.02, 0.02) / 0.06 / 5**0.5
    assert width[0] < width[1] < 0.35 * unpaired


def test_seeds_are_paired_too():
    """A seed's noise is common to the variants; only the seeds that both have are compared."""
    rng = np.random.default_rng(0)
    by_seed = np.repeat(rng.normal(0, 0.02, (1, 5, 3)), 2, axis=0)
    df = study({"prenorm": 1, "x": 1.2}, noise=by_seed, seeds=3)
    df = df[~((df["variant"] == "x") & (df["seed"] == 2))]
    result = multiplier(df, "x")
    assert result.n_seeds == (2,) * 5 and result.seeds_paired
    # The noise moves alpha, which converts the gap; the paired gap itself is untouched.
    gap = result.alpha_shared.value * np.log(result.shared.value)
    assert gap == pytest.approx(0.06 * np.log(1.2))


def test_without_common_seeds_all_are_averaged_and_it_is_said():
    df = study({"prenorm": 1, "x": 1.2})
    df.loc[df["variant"] == "x", "seed"] = 7
    result = multiplier(df, "x")
    assert not result.seeds_paired
    assert result.shared.value == pytest.approx(1.2)


def test_separate_interval_is_the_regression_of_the_paired_differences():
    """Independent derivation for equal compute: d on ln C, its value at C over alpha_b."""
    rng = np.random.default_rng(8)
    x = np.log(np.geomspace(0.5, 8, 6))
    y_b, y_v = rng.normal(0, 0.01, (2, 6)) - 0.06 * x
    at = x[-1]
    design = np.stack([np.ones(6), x - at], axis=1)
    inverse = np.linalg.inv(design.T @ design)
    both = np.stack([y_b - y_v, y_b], axis=1)
    beta = inverse @ design.T @ both
    residual = both - design @ beta
    s = residual.T @ residual / 4
    delta, alpha = beta[0, 0], -beta[1, 1]
    gradient = np.array([1 / alpha, -delta / alpha**2])
    cov = np.array(
        [
            [s[0, 0] * inverse[0, 0], -s[0, 1] * inverse[0, 1]],
            [-s[0, 1] * inverse[0, 1], s[1, 1] * inverse[1, 1]],
        ]
    )
    half = 2.7764451052 * np.sqrt(gradient @ cov @ gradient)
    got = separate_exponents_shift(x, y_b, x, y_v, at, 0.95).ln_m
    assert got.value == pytest.approx(delta / alpha)
    assert got.high - got.value == pytest.approx(half)


@pytest.mark.parametrize(("m", "correlation"), [(1.0, 0.9), (1.25, 0.9), (1.25, 0.0), (3.0, 0.9)])
def test_shared_interval_covers_the_truth_and_is_not_idle(m, correlation):
    """Unpaired, it would nearly always cover at correlation 0.9; the width guards that."""
    rng = np.random.default_rng(int(100 * m))
    x = np.log(np.geomspace(0.5, 8, 5))
    common = rng.normal(0, 0.004 * correlation**0.5, (2000, 5))
    own = rng.normal(0, 0.004 * (1 - correlation) ** 0.5, (2, 2000, 5))
    y_b = -0.06 * x + common + own[0]
    y_v = -0.06 * (x + np.log(m)) + common + own[1]
    shifts = [shared_exponent_shift(x, b, x, v, 0.95).ln_m for b, v in zip(y_b, y_v, strict=True)]
    coverage = np.mean([s.contains(np.log(m)) for s in shifts])
    assert 0.935 < coverage < 0.985  # binomial SD 0.005
    if m == 1.25:
        sd_of_mean = 0.004 * (2 * (1 - correlation) / 5) ** 0.5 / 0.06
        width = np.median([s.high - s.low for s in shifts]) / (2 * sd_of_mean)
        assert 2.2 < width < 3.6  # about t(0.975, 4) = 2.8; unpaired it would be 9 at 0.9


def test_whole_studies_are_paired_by_size_and_seed():
    """Through the table: rows in random order, common noise by size and by seed."""
    rng = np.random.default_rng(11)
    hits, widths = 0, []
    for _ in range(150):
        by_size = rng.normal(0, 0.01, (1, 4, 1)) + rng.normal(0, 0.004, (1, 4, 2))
        noise = by_size + rng.normal(0, 0.001, (2, 4, 2))
        df = study({"prenorm": 1, "x": 1.1}, noise=noise, seeds=2, compute=np.array([1, 3, 9, 27]))
        shared = multiplier(df.sample(frac=1, random_state=1), "x").shared
        hits += shared.contains(1.1)
        widths.append(np.log(shared.high / shared.low))
    assert 135 <= hits <= 149  # 142.5 expected, binomial SD 2.7
    ideal = 2 * 3.18 * 0.001 / 0.06 / 2  # t * sqrt(2) / sqrt(2 seeds) / sqrt(4 sizes)
    assert ideal * 0.7 < np.median(widths) < ideal * 1.6


def test_level_widens_and_separable_follows_the_interval():
    noise = np.random.default_rng(1).normal(0, 0.003, (2, 5, 1))
    df = study({"prenorm": 1, "x": 1.3}, noise=noise)
    narrow, wide = multiplier(df, "x", level=0.5), multiplier(df, "x", level=0.9999)
    assert wide.shared.low < narrow.shared.low < narrow.shared.high < wide.shared.high
    assert narrow.separable and not wide.separable


@pytest.mark.parametrize(
    ("m", "at", "reason"),
    [
        (1.2, None, "outside what 'prenorm' was observed at"),
        (0.9, 1e3, "outside the compute that 'x' was run at"),
        (0.9, None, None),
        (1.2, 2.0, None),
    ],
)
def test_says_when_it_extrapolates(m, at, reason):
    result = multiplier(study({"prenorm": 1, "x": m}), "x", at=at)
    assert result.extrapolates == (reason is not None)
    assert (reason or "") in (result.extrapolation or "")


def test_sizes_of_only_one_variant_are_dropped_and_named():
    df = study({"prenorm": 1, "x": 1.2})
    df = df[~((df["variant"] == "x") & (df["size"] == "S4"))]
    result = multiplier(df, "x")
    assert result.dropped_sizes == ("S4",)
    assert result.sizes == ("S0", "S1", "S2", "S3")


def test_to_dict_survives_json():
    result = multiplier(study({"prenorm": 1, "x": 1.2}), "x")
    again = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert again["shared"]["value"] == result.shared.value


def refused(df, *args, **kwargs) -> Refusal:
    with pytest.raises(Refusal) as e:
        multiplier(df, *args, **kwargs)
    return e.value


def test_refusals():
    df = study({"prenorm": 1, "attnres_full": 1.2})
    missing = refused(df, "attnres_ful")
    assert missing.code == "missing-variant" and "Did you mean 'attnres_full'" in str(missing)
    assert refused(df, "prenorm").code == "same-variant"
    assert refused(df, "attnres_full", at=-1).code == "bad-compute"
    nameless = refused(study({"p": 1, "q": 1.2}), "q")
    assert nameless.code == "no-baseline" and "'p', 'q'" in str(nameless)

    two = df[~(df["variant"].eq("attnres_full") & df["size"].isin(["S0", "S1", "S2"]))]
    few = refused(two, "attnres_full")
    assert few.code == "too-few-sizes" and "has 2 sizes" in str(few)
    none = refused(df[df["variant"].eq("prenorm") | df["size"].eq("S0")], "attnres_full")
    assert "has 1 size " in str(none)


@pytest.mark.parametrize("scale", [0.0, 0.3])
def test_refuses_a_baseline_whose_loss_does_not_fall(scale):
    """Rising losses, and losses so noisy that the slope's interval holds 0."""
    alpha = -0.05 if scale == 0 else 0.05
    noise = scale * np.random.default_rng(0).normal(size=(2, 5, 1))
    error = refused(study({"prenorm": 1, "x": 1.2}, alpha=alpha, noise=noise), "x")
    assert error.code == "no-usable-slope"
    assert "does not fall with compute" in str(error) and "prenorm" in str(error)


def curves(compute, base, variant):
    rows = [(n, f"S{i}", x, c) for n, y in (("prenorm", base), ("v", variant))
            for i, (x, c) in enumerate(zip(y, compute, strict=True))]  # fmt: skip
    return load(pd.DataFrame(rows, columns=["variant", "size", "loss", "train_flops"]))


@pytest.mark.parametrize(
    ("base", "variant", "code"),
    [
        ((3, 2.9995, 2.999, 2.9985), (1.5, 1.4, 1.3, 1.2), "out-of-range"),
        ((1.5, 1.4995, 1.499, 1.4985), (3, 2.9995, 2.999, 2.9985), "out-of-range"),
        ((4, 2, 1), (1, 2, 4), "no-usable-slope"),
    ],
)
def test_what_no_slope_turns_into_compute_is_refused(base, variant, code):
    df = curves(1e18 * 3.0 ** np.arange(len(base)), base, variant)
    with pytest.raises(Refusal) as error:
        multiplier(df, "v")
    assert error.value.code == code


def test_a_size_whose_absence_leaves_no_slope_has_no_multiplier_without_it():
    for compute in ((1e18, 1e18, 1e18, 1e19), (1e18, 1.01e18, 1.02e18, 1e19)):
        df = curves(compute, (3, 3.004, 3.001, 2.5), (2.9, 2.903, 2.9015, 2.4))
        left_out = robustness(df, "v").left_out
        assert {size for size, m in left_out.items() if m is None} == {"S3"}


@pytest.mark.parametrize("level", [95, 0, 1.0])
def test_a_level_is_a_share(level):
    with pytest.raises(Refusal, match="between 0 and 1"):
        multiplier(load("attnres_table2"), "attnres_block", level=level)


def test_at_equal_loss_it_is_the_same_shift():
    """C_base / C_variant at the loss that the variant has at `at`; intervals by moving points."""
    noise = np.random.default_rng(1).normal(0, 0.003, (2, 5, 1))
    df = study({"prenorm": 1, "x": 1.2}, noise=noise, alphas={"prenorm": 0.05, "x": 0.06})
    at_compute = multiplier(df, "x", at=3.0)
    at_loss = multiplier(df, "x", at_loss=at_compute.at_loss)
    assert at_loss.at == pytest.approx(3.0)
    assert at_loss.separate.value == pytest.approx(at_compute.separate.value, rel=1e-9)

    x = np.log(np.geomspace(0.5, 8, 5))
    y = np.log([df[df["variant"] == v]["loss"].to_numpy() for v in ("prenorm", "x")])

    def ln_m(y, loss=at_compute.at_loss):
        b, v = (np.polyfit(x, row, 1) for row in y)
        return (np.log(loss) - b[1]) / b[0] - (np.log(loss) - v[1]) / v[0]

    residuals = y - [np.polyval(np.polyfit(x, row, 1), x) for row in y]
    half = t_quantile(0.95, 3) * paired_standard_error(ln_m, y, residuals, 3)
    found = at_loss.separate
    assert np.log(found.high / found.low) / 2 == pytest.approx(half, rel=1e-5)


@pytest.mark.parametrize(
    "options, say",
    [
        ({"at": 1.0, "at_loss": 2.0}, "not both"),
        ({"at_loss": 0.0}, "nats above 0"),
        ({"at_loss": float("nan")}, "nats above 0"),
        ({"at_loss": 1e-20}, "far from all that was run"),
    ],
)
def test_what_it_cannot_be_asked(options, say):
    with pytest.raises(Refusal, match=say):
        multiplier(study({"prenorm": 1, "x": 1.2}), "x", **options)


def crossing_study(noise=0.0005, alpha=0.08):
    e = np.random.default_rng(0).normal(0, noise, (2, 5, 1))
    alphas = {"prenorm": 0.05, "x": alpha}  # at C = 1 they are equal
    return study({"prenorm": 1, "x": 1}, alphas=alphas, compute=np.geomspace(0.1, 10, 5), noise=e)


def test_curves_that_cross_have_no_single_multiplier():
    df = crossing_study()
    with pytest.raises(Refusal, match=r"cross at .* there is no single one") as error:
        multiplier(df, "x")
    assert error.value.code == "curves-cross"
    m = multiplier(df, "x", at=10.0)
    assert m.crosses_at == pytest.approx(1.0, rel=0.2)
    assert m.separable and m.separate.low > 1 > multiplier(df, "x", at=0.1).separate.high
    assert simultaneous(df, [m]) == {} and bootstraps(df, [m]) == {}


def test_a_crossing_that_noise_could_have_made_is_none():
    assert multiplier(crossing_study(0.003, alpha=0.051), "x").crosses_at is None


def test_the_curve_of_the_multiplier():
    df = crossing_study()
    curve = multiplier_curve(df, "x", n_points=21)
    assert curve["pflops_days"].iloc[[0, -1]].tolist() == pytest.approx([0.1, 10.0])
    for row in curve.iloc[[0, 7, 20]].itertuples():
        m = multiplier(df, "x", at=row.pflops_days).separate
        assert (row.multiplier, row.low, row.high) == pytest.approx((m.value, m.low, m.high))
    best, worst = (f(df[df["variant"] == "prenorm"]["loss"]) for f in (min, max))
    loss = curve["pflops_days"] ** -0.08 * 1.9
    clear = (np.abs(loss - best) > 0.01) & (np.abs(loss - worst) > 0.01)
    assert (curve["inside"] == loss.between(best, worst))[clear].all()
    assert not curve["inside"].iloc[-1] and curve["inside"].iloc[10]


def test_several_at_once_are_wider():
    noise = np.random.default_rng(1).normal(0, 0.003, (3, 5, 1))
    df = study({"prenorm": 1, "x": 1.2, "z": 1.3}, noise=noise)
    found = [multiplier(df, v) for v in ("x", "z")]
    together = simultaneous(df, found)
    assert together["x"] == multiplier(df, "x", level=0.975).shared
    assert together["x"].low < found[0].shared.low < found[0].shared.high < together["x"].high
    assert simultaneous(df, found[:1])["x"] == found[0].shared


def test_losses_that_do_not_overlap_are_refused():
    df = study({"prenorm": 1, "x": 40}, compute=np.array([1.0, 2.0, 4.0, 8.0]))
    with pytest.raises(Refusal, match="do not overlap") as error:
        multiplier(df, "x")
    assert error.value.code == "no-overlap"


def test_weights_are_one_over_the_variance_of_a_sizes_mean():
    noise = np.random.default_rng(0).normal(0, 0.01, (1, 4, 3))
    df = study({"prenorm": 1}, noise=noise, seeds=3, compute=np.array([1.0, 2.0, 4.0, 8.0]))
    df = df.drop(df.index[[0, 1]])  # one seed is left of the first size
    pooled = np.var(noise[0, 1:], axis=1, ddof=1).mean()
    assert seed_weights(df, "prenorm") == pytest.approx(np.array([1, 3, 3, 3]) / pooled)
    with pytest.raises(Refusal, match="two seeds"):
        seed_weights(study({"prenorm": 1}), "prenorm")
