import json

import matplotlib
import numpy as np
import pytest
from made_up_studies import study
from matplotlib.figure import Figure

import analysis
from analysis import Refusal, load, plots
from analysis.curves import load_curves
from analysis.style import look, save

THREE = {"prenorm": 1.0, "attnres_block": 1.2, "attnres_full": 1.3}


@pytest.fixture
def noisy():
    return study(THREE, noise=np.random.default_rng(0).normal(0, 0.003, (3, 5, 2)), seeds=2)


@pytest.fixture
def run(tmp_path, noisy):
    """A run directory: results.csv and a metrics file a cell, with an evaluation line in each."""
    df = noisy.assign(cell=[f"cell{i}" for i in range(len(noisy))], status="done")
    df.to_csv(tmp_path / "results.csv", index=False)
    for cell, loss in zip(df["cell"], df["loss"], strict=True):
        (tmp_path / cell).mkdir()
        lines = [{"step": s, "tokens": 64 * s, "loss": loss + 5 / s} for s in range(1, 301)]
        lines.append({"step": 300, "val_loss": loss})
        text = "\n".join(map(json.dumps, lines)) + '\n{"step": 3'
        (tmp_path / cell / "metrics.jsonl").write_text(text)
    return tmp_path


def texts(figure: Figure) -> str:
    return " | ".join(t.get_text() for t in figure.findobj(matplotlib.text.Text))


def drawn_overlaps(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of tick labels, titles and axis labels whose boxes overlap on the canvas."""
    figure.canvas.draw()
    drawn = []
    for axes in (a for a in figure.axes if a.get_visible()):
        drawn += [axes.title, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            drawn += [
                tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high
            ]
    boxes = [
        (t.get_text(), t.get_window_extent().padded(-1))
        for t in drawn
        if t.get_text() and t.get_visible()
    ]
    return [
        (a, b)
        for i, (a, box) in enumerate(boxes)
        for b, other in boxes[i + 1 :]
        if box.overlaps(other)
    ]


@pytest.mark.parametrize(("span", "scale"), [(4, 1.0), (20, 1e-6), (1000, 1e-6)])
@pytest.mark.parametrize("name", ["loss_vs_compute", "multipliers_by_size", "gap_by_size"])
def test_figures_are_legible_at_any_scale(name, span, scale):
    noise = np.random.default_rng(0).normal(0, 0.003, (3, 5, 2))
    df = study(THREE, noise=noise, seeds=2, compute=scale * np.geomspace(1, span, 5))
    figure = getattr(analysis, name)(df)
    assert isinstance(figure, Figure)
    assert drawn_overlaps(figure) == []


def test_loss_plot_shows_every_run_units_and_convention(noisy):
    figure = analysis.loss_vs_compute(noisy)
    top, bottom = figure.axes
    points = sum(len(line.get_xdata()) for line in top.lines if line.get_linestyle() == "None")
    assert points == len(noisy)
    assert len(top.collections) == 3  # bands
    assert "PFLOP/s-days, train_flops" in bottom.get_xlabel()
    assert "nats" in top.get_ylabel()
    assert "prenorm: " in texts(figure)


def test_loss_ticks_are_plain_decimals_inside_the_data():
    figure = analysis.loss_vs_compute(load("attnres_table2"))
    figure.canvas.draw()
    axis = figure.axes[0]
    low, high = axis.get_ylim()
    labels = [t.get_text() for t in axis.get_yticklabels() if low <= t.get_position()[1] <= high]
    assert {"1.7", "1.8", "1.9"} <= set(labels)


def test_loss_plot_of_two_sizes_shows_points_and_says_there_is_no_fit():
    df = study({"prenorm": 1.0}, compute=np.array([1.0, 2.0]))
    assert "no fit" in texts(analysis.loss_vs_compute(df))


def test_multiplier_panels_carry_their_interval(noisy):
    text = texts(analysis.multipliers_by_size(noisy))
    assert all(word in text for word in ("attnres_block\n", "attnres_full\n", "x [", "prenorm"))


def test_multiplier_plot_needs_two_variants():
    with pytest.raises(Refusal) as e:
        analysis.multipliers_by_size(study({"prenorm": 1.0}))
    assert e.value.code == "one-variant"


def test_curves_are_read_and_smoothed(run, noisy):
    curves = load_curves(run)
    assert list(curves.columns) == ["variant", "size", "seed", "step", "tokens", "loss"]
    assert len(curves) == len(noisy) * 300
    figure = analysis.loss_curves(curves)
    assert [a.get_title() for a in figure.axes if a.get_visible()] == [f"S{i}" for i in range(5)]
    assert "mean of 3 points" in texts(figure)
    line = figure.axes[0].lines[0]
    first = curves.iloc[:300]["loss"].to_numpy()
    assert line.get_ydata()[10] == pytest.approx(first[8:11].mean())
    assert drawn_overlaps(figure) == []


def test_broken_metrics_are_named(run):
    path = run / "cell0" / "metrics.jsonl"
    path.write_text('{"step": 1\n' + path.read_text())
    with pytest.raises(Refusal, match=r"Line 1 of .*cell0") as e:
        load_curves(run)
    assert e.value.code == "bad-metrics"


def test_no_curves(run, tmp_path_factory):
    for path in run.glob("*/metrics.jsonl"):
        path.unlink()
    with pytest.raises(Refusal) as e:
        load_curves(run)
    assert e.value.code == "no-curves"
    study({"x": 1.0}).to_csv(run / "results.csv")
    with pytest.raises(Refusal, match="scaling results") as e:
        load_curves(run)
    assert e.value.code == "no-cells"


def test_save_all_writes_both_formats_and_says_what_is_missing(run, tmp_path):
    written, skipped = plots.save_all(load(run), tmp_path / "p", run=run)
    assert len(written) == 8 and skipped == {}
    assert all(path.stat().st_size > 1000 for path in written)
    written, skipped = plots.save_all(study({"x": 1.0}), tmp_path / "q")
    assert [p.name for p in written] == ["loss_vs_compute.png", "loss_vs_compute.svg"]
    assert set(skipped) == {"multipliers_by_size", "gap_by_size"}


def test_same_results_same_svg(noisy, tmp_path):
    a, b = (save(analysis.loss_vs_compute(noisy), tmp_path / d, "x")[1] for d in "ab")
    assert a.read_bytes() == b.read_bytes()


def test_variants_differ_in_colour_and_marker():
    looks = look(list("abcdefg"), "c")
    assert looks["c"]["color"] == "#000000"
    assert len({(v["color"], v["marker"]) for v in looks.values()}) == 7


def test_names_are_shown_as_they_are(noisy, tmp_path):
    """With dollars, which would be mathematics, and with an underscore, which would be hidden."""
    new = {"attnres_full": "_x", "attnres_block": "a$b$"}
    df = noisy.assign(variant=noisy["variant"].replace(new))
    figure = analysis.loss_vs_compute(df)
    labels = [t.get_text() for t in figure.axes[0].get_legend().get_texts()]
    assert [label.partition(":")[0] for label in labels] == ["prenorm", r"a\$b\$", "_x"]
    curves = df.assign(step=df["seed"], tokens=1 + df["seed"])
    figures = {"multipliers": analysis.multipliers_by_size(df), "curves": plots.loss_curves(curves)}
    for name, figure in figures.items():
        svg = save(figure, tmp_path, name)[1].read_text()
        assert ">a$b$<" in svg and ">_x<" in svg
    title = analysis.gap_by_size(df, full="_x", block="a$b$").axes[0].get_title()
    assert title.startswith(r"a\$b\$ - _x")


def test_losses_that_are_all_the_same(noisy):
    """No warning: of equal limits, or of a division by zero."""
    df = noisy.assign(loss=2.0)
    for figure in (
        analysis.loss_vs_compute(df),
        analysis.gap_by_size(df),
        plots.loss_curves(df.assign(step=0, tokens=0)),
    ):
        low, high = figure.axes[0].get_ylim()
        assert low < high
        figure.canvas.draw()
