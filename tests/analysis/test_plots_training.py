"""Curves and dynamics: what is read from a run directory, and what is drawn of it."""

import json

import numpy as np
import pandas as pd
import pytest
from plot_flaws import flaws
from plot_worlds import plot_world

import analysis
from analysis import Refusal
from analysis.curves import COLUMNS, load_curves
from analysis.dynamics import load_ablation, load_dynamics
from analysis.plots.depth import last_steps
from analysis.stats import mean_interval
from analysis.style import COLUMN, FULL

THREE = {
    "prenorm": {},
    "attnres_block": {"m": 1.2, "kind": "block"},
    "attnres_full": {"m": 1.3, "kind": "full"},
}
LONG = "attnres_full_without_key_norm_and_with_input_dependent_query_heads"
ODD = {
    "prenorm": {},
    LONG + "16": {"kind": "full"},
    LONG + "32": {"kind": "full"},
    "a$b$<script>_x^2": {"kind": "block"},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return plot_world(tmp_path_factory.mktemp("run"), THREE, sizes=3)


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    return plot_world(tmp_path_factory.mktemp("odd"), ODD, sizes=2)


@pytest.fixture
def one_cell(tmp_path):
    """A run directory of one cell, and its metrics file."""
    plot_world(tmp_path, {"prenorm": {}}, sizes=1, seeds=1, n_lines=40)
    return tmp_path, tmp_path / "d16-c0-s0" / "metrics.jsonl"


@pytest.mark.parametrize("page", [FULL, COLUMN], ids=["full", "column"])
def test_figures_are_legible(run, odd, page):
    for folder in (run, odd) if page == COLUMN else (run,):
        curves, dynamics = load_curves(folder), load_dynamics(folder, last_step=True)
        figures = {
            "curves": analysis.loss_curves(curves, page=page),
            "step": analysis.loss_by_step(curves, page=page),
            "input": analysis.input_by_depth(dynamics, page=page),
            "output": analysis.output_by_depth(dynamics, page=page),
            "gradient": analysis.gradient_by_depth(dynamics, page=page),
            "alpha": analysis.alpha_heatmaps(dynamics, load_ablation(folder), page=page),
        }
        for name, figure in figures.items():
            assert (name, flaws(figure)) == (name, [])


def test_curves_are_read_and_smoothed(run):
    curves = load_curves(run)
    assert tuple(curves.columns) == COLUMNS and len(curves) == 3 * 2 * 3 * 300
    figure = analysis.loss_curves(curves)
    assert [a.get_title() for a in figure.axes if a.get_visible()] == ["d16", "d32", "d48"]
    assert figure.legends[0].get_title().get_text() == "running mean over 1% of a run"
    first = curves.iloc[:300]["loss"].to_numpy()
    assert figure.axes[0].lines[0].get_ydata()[10] == pytest.approx(first[8:11].mean())
    assert "tokens (millions)" in figure.get_supxlabel()


def test_the_difference_to_the_baseline_is_paired_by_seed(run):
    curves = load_curves(run)
    figure = analysis.loss_by_step(curves, "d32")
    top, bottom = figure.axes
    assert "steps" not in top.get_xlabel() and bottom.get_xlabel() == "optimizer step (count)"
    at = curves[curves["size"] == "d32"].pivot(
        index="step", columns=["variant", "seed"], values="loss"
    )
    smooth = at.rolling(3).mean()
    each = [smooth["attnres_full", seed] - smooth["prenorm", seed] for seed in (0, 1)]
    expected = 1000 * np.mean(each, axis=0)
    line = next(x for x in bottom.lines if x.get_color() == top.lines[-1].get_color())
    np.testing.assert_allclose(line.get_ydata()[2:], expected[2:], atol=1e-9)
    interval = mean_interval([1000 * e.iloc[150] for e in each], 0.95)
    vertices = bottom.collections[-1].get_paths()[0].vertices
    there = vertices[np.isclose(vertices[:, 0], smooth.index[150]), 1]
    assert (there.min(), there.max()) == pytest.approx((interval.low, interval.high))


def test_one_seed_has_no_interval_and_the_figure_says_so(run):
    curves = load_curves(run)
    figure = analysis.loss_by_step(curves[curves["seed"] == 0])
    said = figure.legends[0].get_title().get_text()
    assert "differences without interval" in said and said.startswith("size d48")


def test_one_variant_is_drawn_alone(run):
    curves = load_curves(run)
    figure = analysis.loss_by_step(curves[curves["variant"] == "prenorm"])
    assert len(figure.axes) == 1 and flaws(figure) == []
    alone = curves[curves["variant"] == "attnres_full"]
    assert "no baseline" in analysis.loss_by_step(alone).legends[0].get_title().get_text()


def test_a_size_that_is_not_there(run):
    with pytest.raises(Refusal, match="Did you mean 'd32'") as e:
        analysis.loss_by_step(load_curves(run), "d33")
    assert e.value.code == "missing-size"


def test_a_million_steps_are_averaged_to_what_can_be_seen(one_cell):
    folder, path = one_cell
    n = 120_000
    loss = 3 + np.random.default_rng(0).normal(0, 0.1, n)
    rows = zip(range(1, n + 1), loss.tolist(), strict=True)
    path.write_text("\n".join(f'{{"step": {s}, "tokens": {9 * s}, "loss": {v}}}' for s, v in rows))
    curves = load_curves(folder)
    assert len(curves) == 5000
    np.testing.assert_allclose(curves["loss"], loss.reshape(5000, 24).mean(axis=1))
    assert curves["step"].iloc[-1] == n and curves["tokens"].iloc[0] == 9 * 24
    assert len(load_curves(folder, max_points=7)) == 7
    figure = analysis.loss_by_step(curves)
    assert len(figure.axes[0].lines[0].get_xdata()) <= 501 and flaws(figure) == []


def test_a_torn_last_line_is_passed_over_and_so_are_evaluations(one_cell):
    folder, path = one_cell
    assert path.read_text().endswith('\n{"step": 3')
    assert len(load_curves(folder)) == 40
    path.write_text('{"step": 1, "tokens": 2, "loss": 3.5}\n{"step": 1, "val_loss": 3}\n\n')
    assert load_curves(folder)["loss"].tolist() == [3.5]
    path.write_bytes(path.read_bytes() + b'{"step": 2, "tok\x00\xff\xfe')
    assert len(load_curves(folder)) == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"step": 1', "not a JSON object"),
        (b"\xff\xfe\x00", "not a JSON object"),
        (b'{"step": 1, "tokens": 2, "loss": "low"}', "no number"),
    ],
)
def test_broken_metrics_are_named(one_cell, line, words):
    folder, path = one_cell
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:10], line, *lines[10:]]))
    with pytest.raises(Refusal, match=rf"Line 11 of .*d16.*{words}") as e:
        load_curves(folder)
    assert e.value.code == "bad-metrics"
    kept = load_curves(folder, strict=False)
    assert len(kept) == 10 and "Line 11 of" in kept.attrs["damaged"][0]


def test_numbers_in_other_guises(one_cell):
    """What Arrow's reader leaves to the one that goes by line."""
    folder, path = one_cell
    lines = [{"step": 1.0, "tokens": 2, "loss": 3}, [1], {"step": 2, "tokens": 4, "loss": None}]
    path.write_text("\n".join(map(json.dumps, lines)) + '\n{"step": 3, "tokens": 6, "loss": NaN}\n')
    curves = load_curves(folder)
    assert curves["step"].tolist() == [1, 3] and np.isnan(curves["loss"].iloc[1])
    assert len(analysis.loss_curves(curves).axes[0].lines[0].get_xdata()) == 1


def test_no_curves(one_cell):
    folder, path = one_cell
    path.unlink()
    with pytest.raises(Refusal) as e:
        load_curves(folder)
    assert e.value.code == "no-curves"
    results = pd.read_csv(folder / "results.csv")
    results.drop(columns="cell").to_csv(folder / "results.csv")
    with pytest.raises(Refusal, match="scaling results") as e:
        load_curves(folder)
    assert e.value.code == "no-cells"
    with pytest.raises(Refusal) as e:
        nan = pd.DataFrame([("x", "s", 0, 1, 1, np.nan)], columns=list(COLUMNS))
        analysis.loss_curves(nan)
    assert e.value.code == "no-curves"


def test_runs_that_are_not_done(tmp_path):
    plot_world(tmp_path, THREE, sizes=2, seeds=1, unfinished=True)
    with pytest.raises(Refusal) as e:
        load_curves(tmp_path)
    assert e.value.code == "no-finished-runs"
    curves = load_curves(tmp_path, unfinished=True)
    assert curves["step"].max() == 1500 and list(dict.fromkeys(curves["size"])) == ["d16", "d32"]
    results = pd.read_csv(tmp_path / "results.csv")
    results.loc[0, ["status", "train_flops", "val_loss"]] = ["done", 1e12, 2.0]
    results.to_csv(tmp_path / "results.csv", index=False)
    assert len(load_curves(tmp_path)) == 150
    both = load_curves(tmp_path, unfinished=True)
    assert len(both) == 6 * 150 and set(both["seed"]) == {0}


@pytest.mark.parametrize(
    ("draw", "metric"),
    [
        (analysis.input_by_depth, "input_rms"),
        (analysis.output_by_depth, "output_rms"),
        (analysis.gradient_by_depth, "grad_norm"),
    ],
)
def test_depth_plots_show_geometric_means_over_seeds_at_the_last_step(run, draw, metric):
    dynamics = load_dynamics(run)
    figure = draw(dynamics, size="d32")
    rows = dynamics[(dynamics["metric"] == metric) & (dynamics["size"] == "d32")]
    rows = rows[(rows["step"] == 3000) & (rows["variant"] == "prenorm") & (rows["site"] == "mlp")]
    logs = rows.assign(value=np.log(rows["value"].astype(float))).groupby("sublayer")["value"]
    panel = figure.axes[1]
    assert panel.get_title() == "MLP"
    np.testing.assert_allclose(panel.lines[0].get_ydata(), np.exp(logs.mean()))
    np.testing.assert_array_equal(panel.lines[0].get_xdata(), [0, 1, 2, 3])
    interval = mean_interval(logs.get_group(3), 0.95).exp()
    vertices = panel.collections[0].get_paths()[0].vertices
    first = vertices[vertices[:, 0] == 1, 1]
    assert (first.min(), first.max()) == pytest.approx((interval.low, interval.high), rel=1e-6)
    said = figure.legends[0].get_title().get_text()
    assert said == "size d32; step 3000; bands: 95% over seeds"
    assert "(" in figure.get_supylabel()


def test_depth_plot_of_one_seed_and_of_what_is_not_positive(run):
    dynamics = load_dynamics(run, metrics=["output_rms"])
    figure = analysis.output_by_depth(dynamics[dynamics["seed"] == 1])
    assert "one seed, no interval" in figure.legends[0].get_title().get_text()
    with pytest.raises(Refusal) as e:
        analysis.output_by_depth(dynamics.assign(value=0.0))
    assert e.value.code == "no-depth"
    with pytest.raises(Refusal, match="only 'output_rms'") as e:
        analysis.gradient_by_depth(dynamics)
    assert e.value.code == "no-metric"


def test_runs_that_were_measured_at_different_last_steps(run):
    dynamics = load_dynamics(run, metrics=["output_rms"])
    early = (dynamics["variant"] == "prenorm") & (dynamics["step"] > 1500)
    figure = analysis.output_by_depth(dynamics[~early])
    assert "each run's last step (1500 to 3000)" in figure.legends[0].get_title().get_text()


def test_alpha_maps_are_means_over_seeds_and_stand_beside_the_importance(run):
    dynamics, ablation = load_dynamics(run, metrics=["alpha"]), load_ablation(run)
    figure = analysis.alpha_heatmaps(dynamics, ablation)
    panels = {axis.get_title(): axis for axis in figure.axes}
    rows = last_steps(dynamics[(dynamics["size"] == "d48")])
    rows = rows[rows["variant"] == "attnres_full"]
    for site, sublayers in (("attention", [0, 2, 4, 6, 8]), ("MLP", [1, 3, 5, 7])):
        of_site = rows[rows["sublayer"].isin(sublayers)]
        expected = of_site.pivot_table(index="sublayer", columns="source", values="value")
        shown = panels[f"attnres_full\nbefore {site}"].images[0].get_array()
        np.testing.assert_allclose(shown.filled(np.nan), expected.to_numpy())
    np.testing.assert_allclose(
        panels["attnres_full\nbefore attention"].images[0].get_array().filled(0).sum(axis=1), 1,
        rtol=1e-5,
    )  # fmt: skip
    delta = ablation[(ablation["site"] == "mlp") & (ablation["sublayer"] > 0)]
    expected = delta.pivot_table(index="sublayer", columns="source", values="delta")
    shown = panels["attnres_full\nΔ loss, MLP"].images[0].get_array()
    np.testing.assert_allclose(shown.filled(np.nan), expected.to_numpy())
    # The first read has one source, which nobody takes away; rows stand beside the weights'.
    blank = panels["attnres_full\nΔ loss, attention"].images[0].get_array().mask
    assert blank[0].all() and not blank[1:, 0].any()
    assert panels["attnres_block\nΔ loss, MLP"].texts[0].get_text() == "not measured"
    labels = [axis.get_xlabel() for axis in figure.axes]
    assert "weight α (share, by its root)" in labels
    single = ablation[ablation["sublayer"] >= 0].groupby(["sublayer", "source"])["delta"].mean()
    largest = single.max()
    assert f"Δ loss, removed (nats, to {largest:+.2g})" in labels


def test_alpha_maps_alone(run):
    dynamics = load_dynamics(run, metrics=["alpha", "output_rms"])
    figure = analysis.alpha_heatmaps(dynamics)
    assert len(figure.axes) == 4 + 1 and flaws(figure) == []
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    figure.canvas.draw()
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert {"0", "2", "4", "6", "out"} <= set(names)
    other = load_ablation(run).assign(mode="average")
    labels = [axis.get_xlabel() for axis in analysis.alpha_heatmaps(dynamics, other).axes]
    assert any(label.startswith("Δ loss, averaged (nats") for label in labels)


def test_alpha_maps_need_depth_attention(run):
    dynamics = load_dynamics(run)
    with pytest.raises(Refusal) as e:
        analysis.alpha_heatmaps(dynamics[dynamics["variant"] == "prenorm"])
    assert e.value.code == "no-alpha"
    with pytest.raises(Refusal) as e:
        analysis.alpha_heatmaps(dynamics, load_ablation(run), mode="half")
    assert e.value.code == "bad-option"
