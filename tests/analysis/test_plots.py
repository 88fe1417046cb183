"""Figures of a results table: what they show equals what the analysis says, and can be read."""

import matplotlib
import numpy as np
import pandas as pd
import pytest
from made_up_studies import study
from matplotlib.figure import Figure
from plot_flaws import flaws

import analysis
from analysis import Refusal, load, plots
from analysis.style import COLUMN, FULL, Page, look, save

THREE = {"prenorm": 1.0, "attnres_block": 1.2, "attnres_full": 1.3}


@pytest.fixture
def noisy():
    return study(THREE, noise=np.random.default_rng(0).normal(0, 0.003, (3, 5, 2)), seeds=2)


def texts(figure: Figure) -> str:
    return " | ".join(t.get_text() for t in figure.findobj(matplotlib.text.Text))


def legend_of(figure: Figure) -> list[str]:
    return [t.get_text() for t in figure.legends[0].get_texts()]


@pytest.mark.parametrize("page", [FULL, COLUMN], ids=["full", "column"])
@pytest.mark.parametrize(("span", "scale"), [(4, 1.0), (20, 1e-6), (1000, 1e-6)])
@pytest.mark.parametrize(
    "name", ["loss_vs_compute", "multipliers_by_size", "multiplier_curves", "gap_by_size"]
)
def test_figures_are_legible_at_any_scale_and_width(name, span, scale, page):
    noise = np.random.default_rng(0).normal(0, 0.003, (3, 5, 2))
    df = study(THREE, noise=noise, seeds=2, compute=scale * np.geomspace(1, span, 5))
    figure = getattr(analysis, name)(df, page=page)
    assert isinstance(figure, Figure) and figure.get_figwidth() == page.width
    assert flaws(figure) == []


def test_loss_plot_shows_every_run_units_and_convention(noisy):
    figure = analysis.loss_vs_compute(noisy)
    top, bottom = figure.axes
    points = sum(len(line.get_xdata()) for line in top.lines if line.get_linestyle() == "None")
    assert points == len(noisy)
    assert len(top.collections) == 3  # bands
    assert "PFLOP/s-days, train_flops" in bottom.get_xlabel()
    assert "nats" in top.get_ylabel()


def test_loss_plot_shows_the_fits_bands_and_residuals_of_the_analysis(noisy):
    figure, law = analysis.loss_vs_compute(noisy), analysis.fit(noisy).laws["prenorm"]
    top, bottom = figure.axes
    line = next(x for x in top.lines if len(x.get_xdata()) == 100)  # the baseline's comes first
    loss, low, high = law.predict(line.get_xdata())
    np.testing.assert_allclose(line.get_ydata(), loss)
    band = top.collections[0].get_paths()[0].vertices[:, 1]
    assert band.min() == pytest.approx(low.min()) and band.max() == pytest.approx(high.max())
    runs = noisy[noisy["variant"] == "prenorm"]
    expected = 100 * (runs["loss"] / law.predict(runs["pflops_days"])[0] - 1)
    np.testing.assert_allclose(bottom.lines[0].get_ydata(), expected)
    a = law.alpha
    assert legend_of(figure)[0] == f"prenorm: α {a.value:.4f} [{a.low:.4f}, {a.high:.4f}]"


def test_loss_ticks_are_plain_decimals_inside_the_data():
    figure = analysis.loss_vs_compute(load("attnres_table2"))
    figure.canvas.draw()
    axis = figure.axes[0]
    low, high = axis.get_ylim()
    labels = [t.get_text() for t in axis.get_yticklabels() if low <= t.get_position()[1] <= high]
    assert {"1.7", "1.8", "1.9"} <= set(labels)


def test_loss_plot_without_a_fit_shows_points_and_says_why():
    df = study({"prenorm": 1.0}, compute=np.array([1.0, 2.0]))
    assert "no fit of 2 sizes" in texts(analysis.loss_vs_compute(df))
    df = study({"prenorm": 1.0}, compute=np.array([1.0]))
    figure = analysis.loss_vs_compute(df)
    assert "no fit of 1 size" in texts(figure) and flaws(figure) == []
    same = df.assign(size="a")
    same = pd.concat([same.assign(size=s) for s in "abc"])
    assert "no fit (no-compute-range)" in texts(analysis.loss_vs_compute(same))


def test_multiplier_panels_carry_their_interval(noisy):
    figure = analysis.multipliers_by_size(noisy)
    m = analysis.multiplier(noisy, "attnres_full")
    panel = figure.axes[1]
    assert f"{m.shared.value:.2f}x [{m.shared.low:.2f}, {m.shared.high:.2f}]" in panel.get_title()
    points = next(line for line in panel.lines if line.get_linestyle() == "None")
    np.testing.assert_allclose(points.get_ydata(), [s.value for s in m.by_size])
    span = panel.patches[0].get_extents()
    low, high = panel.transData.inverted().transform([[0, span.y0], [0, span.y1]])[:, 1]
    assert (low, high) == pytest.approx((m.shared.low, m.shared.high))


def test_multiplier_curves_are_those_of_the_analysis_and_shaded_where_extrapolated(noisy):
    figure = analysis.multiplier_curves(noisy)
    curve = analysis.multiplier_curve(noisy, "attnres_full")
    panel = figure.axes[1]
    line = next(x for x in panel.lines if len(x.get_xdata()) == len(curve))
    np.testing.assert_allclose(line.get_ydata(), curve["multiplier"])
    (shaded,) = panel.patches
    x = panel.transData.inverted().transform(shaded.get_extents())[:, 0]
    beyond = curve[~curve["inside"]]["pflops_days"]
    assert len(beyond) and x[0] < beyond.min() and x[1] == pytest.approx(beyond.max())
    last = curve[curve["inside"]].iloc[-1]
    said = f"{last['multiplier']:.2f}x [{last['low']:.2f}, {last['high']:.2f}]"
    assert said in panel.get_title()


def test_stretches_outside():
    x, yes = np.array([1.0, 4.0, 16.0, 64.0]), np.array([False, True, True, False])
    assert plots.multipliers.outside(x, yes) == [(1, 2), (32, 64)]
    assert plots.multipliers.outside(x, ~yes) == [(2, 32)]
    assert plots.multipliers.outside(x, np.ones(4, bool)) == []
    assert plots.multipliers.outside(x, np.zeros(4, bool)) == [(1, 64)]


def test_a_variant_that_cannot_be_compared_does_not_hide_the_others(noisy):
    df = noisy[~((noisy["variant"] == "attnres_block") & (noisy["size"] > "S1"))]
    for draw in (analysis.multipliers_by_size, analysis.multiplier_curves):
        figure = draw(df)
        assert figure.axes[0].get_title() == "attnres_block\nnone: too-few-sizes"
        assert "x [" in figure.axes[1].get_title()
        with pytest.raises(Refusal) as e:
            draw(df[df["variant"] != "attnres_full"])
        assert e.value.code == "too-few-sizes"


def test_multiplier_plot_needs_two_variants():
    for draw in (analysis.multipliers_by_size, analysis.multiplier_curves):
        with pytest.raises(Refusal) as e:
            draw(study({"prenorm": 1.0}))
        assert e.value.code == "one-variant"


def test_gap_plot_shows_the_gaps_of_the_analysis(noisy):
    figure, g = analysis.gap_by_size(noisy), analysis.gap(noisy)
    top, bottom = figure.axes
    points = next(line for line in top.lines if line.get_marker() == "o")
    np.testing.assert_allclose(points.get_ydata(), [1000 * row.gap for row in g.by_size])
    points = next(line for line in bottom.lines if line.get_marker() == "o")
    shares = [row.share_kept for row in g.by_size if row.share_kept is not None]
    drawn = points.get_ydata()[np.isfinite(points.get_ydata())]
    np.testing.assert_allclose(drawn, 100 * np.array(shares))
    assert "millinats" in top.get_ylabel() and "%" in bottom.get_ylabel()


def test_same_results_same_files(noisy, tmp_path):
    a, b = (save(analysis.loss_vs_compute(noisy), tmp_path / d, "x", pdf=True) for d in "ab")
    assert [p.suffix for p in a] == [".png", ".svg", ".pdf"]
    assert all(p.read_bytes() == q.read_bytes() for p, q in zip(a, b, strict=True))


def test_variants_differ_in_colour_and_marker_and_the_baseline_is_black():
    names = [f"v{i}" for i in range(40)]
    looks = look(names, "v3")
    assert looks["v3"]["color"] == "#000000"
    assert len({(v["color"], v["marker"]) for v in looks.values()}) == 40
    assert [n for n, v in looks.items() if v["color"] == "#000000"] == ["v3"]


def test_a_variant_keeps_its_colour_in_figures_of_a_few():
    page = Page(variants=("prenorm", "a", "b", "c"))
    assert page.look(["c"], "prenorm")["c"] == look(["prenorm", "a", "b", "c"], "prenorm")["c"]


def test_names_are_shown_as_they_are(noisy, tmp_path):
    """With dollars, which would be mathematics, and with an underscore, which would be hidden."""
    new = {"attnres_full": "_x", "attnres_block": "a$b$<i>"}
    df = noisy.assign(variant=noisy["variant"].replace(new))
    figure = analysis.loss_vs_compute(df)
    labels = [label.partition(":")[0] for label in legend_of(figure)]
    assert labels == ["prenorm", r"a\$b\$<i>", "_x"]
    figures = {
        "multipliers": analysis.multipliers_by_size(df),
        "curves": plots.loss_curves(df.assign(step=df["seed"], tokens=1 + df["seed"])),
    }
    for name, figure in figures.items():
        svg = save(figure, tmp_path, name)[1].read_text()
        assert ">a$b$&lt;i&gt;<" in svg and ">_x<" in svg
    title = analysis.gap_by_size(df, full="_x", block="a$b$<i>").axes[0].get_title()
    assert title.startswith(r"a\$b\$<i> - _x")


def test_long_names_lose_their_middle_and_stay_apart(noisy):
    stem = "attnres_full_without_key_norm_and_with_" + 20 * "input_dependent_query_"
    new = {"attnres_full": stem + "16", "attnres_block": stem + "x" + stem + "16"}
    df = noisy.assign(variant=noisy["variant"].replace(new))
    figure = analysis.loss_vs_compute(df, page=COLUMN)
    _, first, second = (label.partition(":")[0] for label in legend_of(figure))
    assert first != second and first.startswith("attnres_full") and "16" in first and "…" in first
    for draw in (analysis.loss_vs_compute, analysis.multipliers_by_size):
        assert flaws(draw(df, page=COLUMN)) == []
    assert flaws(analysis.gap_by_size(df, full=stem + "16", block=new["attnres_block"])) == []


def test_letters_that_the_font_lacks_and_line_breaks(noisy, tmp_path):
    df = noisy.assign(variant=noisy["variant"].replace({"attnres_full": "深\n度"}))
    paths = save(analysis.loss_vs_compute(df), tmp_path, "x")
    assert "深 度" in paths[1].read_text()


def test_losses_that_are_all_the_same(noisy):
    """No warning: of equal limits, or of a division by zero."""
    df = noisy.assign(loss=2.0)
    for figure in (
        analysis.loss_vs_compute(df),
        analysis.gap_by_size(df),
        plots.loss_curves(df.assign(step=0, tokens=0)),
        plots.loss_by_step(df.assign(step=0, tokens=0)),
    ):
        low, high = figure.axes[0].get_ylim()
        assert low < high
        figure.canvas.draw()


def test_twelve_variants():
    rng = np.random.default_rng(1)
    df = study({"prenorm": 1.0} | {f"variant_{i}": 1 + i / 20 for i in range(11)},
               noise=rng.normal(0, 0.002, (12, 4, 1)), compute=np.geomspace(1, 20, 4))  # fmt: skip
    for page in (FULL, COLUMN):
        assert flaws(analysis.loss_vs_compute(df, page=page)) == []
    assert flaws(analysis.multiplier_curves(df)) == []
