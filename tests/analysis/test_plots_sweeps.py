"""Figures of sweeps and of costs: blocks, IsoFLOP budgets, learning rates, time and memory."""

import numpy as np
import pandas as pd
import pytest
from made_up_studies import study
from plot_flaws import flaws
from plot_worlds import plot_world

import analysis
from analysis import Refusal, load
from analysis.isoflop import optimum_law, profile
from analysis.learning_rate import best_rate
from analysis.plots import sweep_rows, with_n_blocks
from analysis.plots.cost import mean_ratio
from analysis.stats import mean_interval
from analysis.style import COLUMN, FULL

PAGES = pytest.mark.parametrize("page", [FULL, COLUMN], ids=["full", "column"])
BLOCKS = {
    "prenorm": {},
    "attnres_full": {"m": 1.3},
    **{f"block_{n}": {"m": 1 + n / 30, "kind": "block", "n_blocks": n} for n in (1, 2, 4, 8)},
}


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("blocks")
    return plot_world(folder, BLOCKS, sizes=2, n_lines=10, inside=False)


def isoflop_runs(variants=("prenorm",), budgets=4, per=6) -> pd.DataFrame:
    rng, rows = np.random.default_rng(0), []
    for variant in variants:
        for C in np.geomspace(1e17, 3e19, budgets):
            best = 0.1 * C**0.5
            for N in best * np.geomspace(0.25, 4, per):
                loss = 10 * (C / 1e17) ** -0.05 + 0.1 * np.log(N / best) ** 2
                rows.append((variant, N, C, loss + rng.normal(0, 0.01)))
    return pd.DataFrame(rows, columns=["variant", "n_params_non_embedding", "train_flops", "loss"])


def sweep(variants=("prenorm",), sizes=3) -> pd.DataFrame:
    rows = []
    for variant in variants:
        for j in range(sizes):
            best = 0.02 / 1.6**j
            for rate in (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08):
                loss = 3 - 0.2 * j + 0.06 * np.log(rate / best) ** 2
                rows.append((variant, f"d{j}", rate, np.nan if rate > 5 * best else loss))
    return pd.DataFrame(rows, columns=["variant", "size", "learning_rate", "loss"])


def stars(axis) -> np.ndarray:
    """[n, 2]"""
    found = [line.get_xydata() for line in axis.lines if line.get_marker() == "*"]
    return np.concatenate(found) if found else np.zeros((0, 2))


@PAGES
def test_figures_are_legible(blocks, page):
    long = "attnres_full_without_key_norm_and_with_input_dependent_query_heads16"
    df = load(blocks)
    figures = {
        "blocks": analysis.block_sweep(with_n_blocks(df, blocks), page=page),
        "isoflop": analysis.isoflop_profiles(isoflop_runs(["prenorm", long, "a$b"], 9), page=page),
        "rates": analysis.learning_rate_sweep(sweep(["prenorm", long, "a$b"], 5), page=page),
        "cost": analysis.cost_by_variant(df.replace({"block_1": long}), page=page),
        "mixing": analysis.mixing_matrices(mixing([f"d48/{long}/s{i}" for i in range(5)]), page),
    }
    for name, figure in figures.items():
        assert figure.get_figwidth() == page.width
        assert (name, flaws(figure)) == (name, [])


def mixing(cells) -> pd.DataFrame:
    rows = [(c, i, j, 1 / (1 + i - j)) for c in cells for i in range(5) for j in range(i + 1)]
    return pd.DataFrame(rows, columns=["cell", "sublayer", "source", "weight"])


def test_mixing_matrices_keep_names_and_units():
    figure = analysis.mixing_matrices(mixing(["d48/a$b$/s0"]))
    assert figure.axes[0].get_title() == r"d48/a\$b\$/s0"
    assert figure.axes[0].get_xlabel() == "source (index)"
    with pytest.raises(Refusal, match="lacks 'weight'"):
        analysis.mixing_matrices(mixing(["a"]).drop(columns="weight"))


def test_block_sweep_shows_means_intervals_and_references(blocks):
    df = with_n_blocks(load(blocks), blocks)
    figure = analysis.block_sweep(df)
    panel = figure.axes[0]
    of_size = df[df["size"] == "d16"]
    points = next(line for line in panel.lines if len(line.get_xdata()) == 4)
    np.testing.assert_array_equal(points.get_xdata(), [1, 2, 4, 8])
    means = [of_size.loc[of_size["variant"] == f"block_{n}", "loss"].mean() for n in (1, 2, 4, 8)]
    np.testing.assert_allclose(points.get_ydata(), means)
    interval = mean_interval(of_size.loc[of_size["variant"] == "block_4", "loss"], 0.95)
    bar = next(line for line in panel.lines if list(line.get_xdata()) == [4, 4])
    assert tuple(bar.get_ydata()) == pytest.approx((interval.low, interval.high))
    across = [line.get_ydata()[0] for line in panel.lines if list(line.get_xdata()) == [0, 1]]
    losses = of_size.groupby("variant")["loss"].mean()
    assert across == pytest.approx([losses["prenorm"], losses["attnres_full"]])
    names = [t.get_text() for t in figure.legends[0].get_texts()]
    assert names == ["prenorm", "attnres_full", "blocks"]
    one = analysis.block_sweep(df[df["seed"] == 0])
    assert one.legends[0].get_title().get_text() == "one seed, no interval"


def test_numbers_of_blocks_come_from_the_grid(blocks, tmp_path):
    df = load(blocks)
    counts = with_n_blocks(df, blocks).set_index("variant")["n_blocks"].groupby(level=0).first()
    assert counts["block_8"] == 8 and np.isnan(counts["prenorm"])
    assert "n_blocks" not in df
    with pytest.raises(Refusal) as e:
        with_n_blocks(df, tmp_path)
    assert e.value.code == "no-grid"
    (tmp_path / "grid.json").write_text('{"cells": [{}]}')
    with pytest.raises(Refusal) as e:
        with_n_blocks(df, tmp_path)
    assert e.value.code == "no-grid"


def test_blocks_by_size_and_of_other_options(tmp_path):
    options = {
        "a": {"sublayers_per_block": 3, "heads": 1},  # 8 sublayers: 3, 3, 2
        "b": {"n_blocks": 2, "sublayers_per_block": None, "heads": 1},
        "c": {"n_blocks": 4, "heads": 4},
        "d": {"boundaries": [1, 3], "heads": 1},
    }
    import json

    cells = [
        {"size": "S0", "variant": name, "seed": 0,
         "model": {"n_layers": 4, "residual": {"name": "attnres_block", "options": given}}}
        for name, given in options.items()
    ]  # fmt: skip
    (tmp_path / "grid.json").write_text(json.dumps({"cells": cells}))
    df = study(dict.fromkeys("abcd", 1.0), compute=np.array([1.0]))
    found = with_n_blocks(df, tmp_path).set_index("variant")["n_blocks"]
    assert found["a"] == 3 and found["b"] == 2
    assert np.isnan(found["c"]) and np.isnan(found["d"])


def test_without_a_sweep_there_is_no_block_figure():
    for df in (study({"prenorm": 1.0}), study({"prenorm": 1.0}).assign(n_blocks=8.0)):
        with pytest.raises(Refusal) as e:
            analysis.block_sweep(df)
        assert e.value.code == "no-block-sweep"


def test_isoflop_minima_and_law_are_those_of_the_analysis():
    df = isoflop_runs(["prenorm", "attnres_full"])
    figure = analysis.isoflop_profiles(df)
    left, right = figure.axes[2:]
    runs = df[df["variant"] == "attnres_full"]
    fitted = [profile(C, of["n_params_non_embedding"], of["loss"])
              for C, of in runs.groupby("train_flops")]  # fmt: skip
    np.testing.assert_allclose(stars(left), [(f.n_opt, f.loss_opt) for f in fitted])
    np.testing.assert_allclose(stars(right), [(f.flops, f.n_opt) for f in fitted])
    law = optimum_law([f.flops for f in fitted], [f.n_opt for f in fitted])
    a = law.exponent
    assert f"a {a.value:.2f} [{a.low:.2f}, {a.high:.2f}]" in right.get_title()
    points = sum(len(line.get_xdata()) for line in left.lines if line.get_linestyle() == "None")
    assert points == len(runs) + len(fitted)


def test_isoflop_says_what_is_not_known():
    df = isoflop_runs(budgets=2)
    df.loc[df["train_flops"] < 1e18, "loss"] = np.linspace(3, 2, 6)  # no minimum inside
    figure = analysis.isoflop_profiles(df.drop(columns="variant"))
    assert len(stars(figure.axes[0])) == 1
    assert figure.axes[1].get_title() == "no law (too-few-points)" and flaws(figure) == []
    df["loss"] = np.tile(np.linspace(3, 2, 6), 2)
    assert "no minimum inside" in analysis.isoflop_profiles(df).axes[1].texts[0].get_text()
    for code, wrong in (("no-isoflop", df[::3]), ("missing-columns", df.drop(columns="loss"))):
        with pytest.raises(Refusal) as e:
            analysis.isoflop_profiles(wrong)
        assert e.value.code == code


def test_best_rates_are_those_of_the_analysis():
    df = sweep(["prenorm", "attnres_full"])
    figure = analysis.learning_rate_sweep(df)
    panel = figure.axes[1]
    assert panel.get_title().startswith("attnres_full\n")
    rows = df[(df["variant"] == "attnres_full")].groupby("size")
    best = [best_rate(dict(zip(of["learning_rate"], of["loss"], strict=True))) for _, of in rows]
    np.testing.assert_allclose(stars(panel), [(b.learning_rate, b.loss) for b in best])
    b = best[0]
    low, high = b.learning_rate / b.tolerance, b.learning_rate * b.tolerance
    assert f"d0: {b.learning_rate:.2g} [{low:.2g}, {high:.2g}]" in panel.get_title()
    crosses = [line.get_xdata() for line in panel.lines if line.get_marker() == "x"]
    assert [list(x) for x in crosses] == [[], [0.08], [0.04, 0.08]]
    assert "x: diverged" in figure.legends[0].get_title().get_text()


def test_a_sweep_that_is_best_at_an_end_has_no_star():
    df = sweep(sizes=1)
    df = df[df["learning_rate"] >= 0.02]
    figure = analysis.learning_rate_sweep(df)
    assert len(stars(figure.axes[0])) == 0
    assert "d0: best at an end" in figure.axes[0].get_title()


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("no-sweep", lambda df: df[:2]),
        ("no-sweep", lambda df: df.assign(loss=np.nan)),
        ("missing-columns", lambda df: df.drop(columns="learning_rate")),
    ],
)
def test_no_sweep(code, change):
    with pytest.raises(Refusal) as e:
        analysis.learning_rate_sweep(change(sweep()))
    assert e.value.code == code


def test_variants_of_a_sweep_get_their_names_back():
    df = pd.DataFrame(
        {
            "variant": ["prenorm-lr0.016", "prenorm-lr0.01", "a-lr1e-05", "prenorm"],
            "learning_rate": [0.016, 0.02, 1e-5, 0.016],
        }
    )
    assert sweep_rows(df)["variant"].tolist() == ["prenorm", "prenorm-lr0.01", "a", "prenorm"]
    assert sweep_rows(df[["variant"]]).equals(df[["variant"]])


def test_costs_are_ratios_paired_by_size_and_seed(blocks):
    df = load(blocks)
    figure = analysis.cost_by_variant(df)
    time, memory = figure.axes
    assert time.get_xlabel() == "step time (ratio)" and "memory" in memory.get_xlabel()
    index = ["size", "seed"]
    seconds = df.assign(t=1 / df["tokens_per_second"]).set_index(["variant", *index])["t"]
    ratios = seconds["attnres_full"] / seconds["prenorm"]
    mean, interval = mean_ratio(ratios)
    by_size = np.log(ratios).groupby(level="size").mean()
    assert mean == pytest.approx(np.exp(by_size.mean()))
    assert interval.low == pytest.approx(np.exp(mean_interval(by_size, 0.95).low))
    diamond = next(line for line in time.lines if line.get_marker() == "D")
    assert diamond.get_xdata()[0] == pytest.approx(mean)
    bar = next(line for line in time.lines if line.get_marker() == "None" and
               list(line.get_ydata()) == [0, 0])  # fmt: skip
    assert tuple(bar.get_xdata()) == pytest.approx((interval.low, interval.high))
    diamond = next(line for line in memory.lines if line.get_marker() == "D")
    assert diamond.get_xdata()[0] == pytest.approx(1.1)


def test_costs_on_other_hardware_are_not_compared(blocks):
    df = load(blocks)
    df.loc[df["variant"] == "block_1", "device_kind"] = "gpu"
    names = [t.get_text() for t in analysis.cost_by_variant(df).axes[0].get_yticklabels()]
    assert "block_2" in names and "block_1" not in names
    df.loc[df["variant"] != "prenorm", "device_kind"] = "gpu"
    with pytest.raises(Refusal) as e:
        analysis.cost_by_variant(df)
    assert e.value.code == "no-pairs"


def test_costs_by_the_clock_of_one_size_and_seed(blocks):
    df = load(blocks).drop(columns=["tokens_per_second", "peak_memory_bytes", "device_kind"])
    one = df[(df["size"] == "d16") & (df["seed"] == 0)]
    figure = analysis.cost_by_variant(one)
    assert len(figure.axes) == 1
    assert "one size and seed, no interval" in figure.get_suptitle()
    with pytest.raises(Refusal) as e:
        analysis.cost_by_variant(df.drop(columns="train_seconds"))
    assert e.value.code == "no-times"
    with pytest.raises(Refusal) as e:
        analysis.cost_by_variant(df[df["variant"] == "prenorm"])
    assert e.value.code == "one-variant"
