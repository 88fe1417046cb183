"""Figures from tables. Each function takes a DataFrame and returns a matplotlib Figure."""

from pathlib import Path

import numpy as np
import pandas as pd

from analysis.cells import size_means
from analysis.curves import load_curves
from analysis.errors import Refusal
from analysis.fit import fit
from analysis.gap import gap
from analysis.multiplier import multiplier
from analysis.style import (
    compute_axis,
    legend,
    look,
    loss_axis,
    new_figure,
    plain,
    save,
    styled,
)
from analysis.table import baseline as baseline_of

COMPUTE_LABEL = "training compute (PFLOP/s-days"
SMOOTHED_POINTS = 100  # a curve is averaged over 1/100 of its points
LEAST_MARGIN = 1.001  # above and below losses that are all the same


def loss_vs_compute(df: pd.DataFrame, baseline: str | None = None):
    """Every run, the fitted laws with 95% confidence bands, and residuals below.

    A variant with fewer than three sizes is drawn without a line, and the legend says so.
    """
    variants = list(df["variant"].unique())
    fits = {v: _law_or_none(df, v) for v in variants}
    looks = look(variants, _baseline_or_none(df, baseline))
    x = df["pflops_days"]
    with styled():
        figure = new_figure(6.4, 5.4)
        top, bottom = figure.subplots(
            2, 1, sharex=True, gridspec_kw={"height_ratios": [3, 1.15], "hspace": 0.04}
        )
        labelled = {}
        for i, variant in enumerate(variants):
            runs, law, style = df[df["variant"] == variant], fits[variant], looks[variant]
            dots = {"color": style["color"], "marker": style["marker"], "linestyle": ""}
            label = f"{plain(variant)}: {_law_text(law)}"
            (labelled[label],) = top.plot(
                runs["pflops_days"], runs["loss"], ms=5, mfc="none", mew=1.1, **dots
            )
            if law is None:
                continue
            grid = np.geomspace(x.min() / 1.15, x.max() * 1.15, 100)
            loss, low, high = law.predict(grid)
            top.plot(grid, loss, color=style["color"], linestyle=style["linestyle"], lw=1.3)
            top.fill_between(grid, low, high, color=style["color"], alpha=0.10, lw=0)
            residuals = 100 * (runs["loss"] / law.predict(runs["pflops_days"])[0] - 1)
            # Variants of one size would hide each other; the steps are a fixed share of the axis.
            nudge = (x.max() / x.min()) ** (0.012 * (i - (len(variants) - 1) / 2))
            bottom.plot(runs["pflops_days"] * nudge, residuals, ms=4.5, mfc="none", mew=1.1, **dots)
        top.set(xscale="log", yscale="log", ylabel="validation loss (nats)")
        margin = max((df["loss"].max() / df["loss"].min()) ** 0.08, LEAST_MARGIN)
        top.set_ylim(df["loss"].min() / margin, df["loss"].max() * margin)
        loss_axis(top.yaxis)
        compute_axis(bottom.xaxis, x.min(), x.max())
        bottom.axhline(0, color="#808080", lw=0.8)
        convention = df.attrs.get("flops_convention") or "convention not stated"
        bottom.set(xlabel=f"{COMPUTE_LABEL}, {plain(convention)})", ylabel="residual (%)")
        legend(top, labelled)
        top.set_title("points: runs; lines: power laws; bands: 95% of the mean curve", fontsize=9)
        figure.align_ylabels()
    return figure


def multipliers_by_size(df: pd.DataFrame, baseline: str | None = None):
    """One panel a variant: paired multiplier at each size, and the pooled value with interval."""
    base = baseline_of(df, baseline)
    variants = [v for v in df["variant"].unique() if v != base]
    if not variants:
        raise Refusal("one-variant", f"The table has only '{base}'; there is nothing to compare.")
    results = {v: multiplier(df, v, baseline=base) for v in variants}
    looks = look(list(df["variant"].unique()), base)
    with styled():
        columns = min(3, len(variants))
        rows = -(-len(variants) // columns)
        figure = new_figure(max(4.8, 2.6 * columns), 0.5 + 2.5 * rows)
        axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for axis in axes[len(variants) :]:
            axis.set_visible(False)
        for axis, (variant, m) in zip(axes, results.items(), strict=False):
            colour = looks[variant]["color"]
            axis.axhspan(m.shared.low, m.shared.high, color=colour, alpha=0.15, lw=0)
            axis.axhline(m.shared.value, color=colour, lw=1.3)
            axis.axhline(1, color="#404040", lw=0.9, ls=":")
            x = [s.pflops_days for s in m.by_size]
            y = [s.value for s in m.by_size]
            axis.plot(x, y, color=colour, marker=looks[variant]["marker"], ls="", ms=6)
            interval = f"{m.shared.value:.2f}x [{m.shared.low:.2f}, {m.shared.high:.2f}]"
            axis.set_title(f"{plain(variant)}\n{interval}")
            axis.set_xscale("log")
            compute_axis(axis.xaxis, min(x), max(x), narrow=True)
            axis.margins(x=0.12)
        figure.supxlabel(f"{COMPUTE_LABEL})", fontsize=10)
        figure.supylabel(f"compute multiplier over {plain(base)}", fontsize=10)
        note = "points: sizes; line and band: shared exponent, paired 95% interval"
        figure.suptitle(note, fontsize=9, color="#404040")
    return figure


def gap_by_size(df: pd.DataFrame, baseline: str | None = None, **variants: str):
    """L_block - L_full by size with its pooled interval, and the share of Full's gain kept.

    `variants` are gap()'s `full` and `block`.
    """
    g = gap(df, baseline=baseline, **variants)
    looks = look([g.baseline, g.block, g.full], g.baseline)
    colour = looks[g.block]["color"]
    x = np.array([row.pflops_days for row in g.by_size])
    with styled():
        figure = new_figure(6.4, 4.8)
        top, bottom = figure.subplots(2, 1, sharex=True)
        _pooled_band(top, g.pooled, colour, scale=1000)
        for row in g.by_size:
            if row.gap_interval:
                ends = [1000 * row.gap_interval.low, 1000 * row.gap_interval.high]
                top.plot([row.pflops_days] * 2, ends, color=colour, lw=1.2)
        top.plot(x, [1000 * row.gap for row in g.by_size], "o", color=colour, ms=6)
        top.axhline(0, color="#404040", lw=0.9, ls=":")
        top.set(xscale="log", ylabel="gap (millinats)")
        bars = ", bars: paired seeds" if any(r.gap_interval for r in g.by_size) else ""
        base, block, full = map(plain, (g.baseline, g.block, g.full))
        top.set_title(f"{block} - {full}; band: pooled 95% interval{bars}")

        _pooled_band(bottom, g.share.estimate, colour, scale=100)
        shares = [np.nan if r.share_kept is None else 100 * r.share_kept for r in g.by_size]
        bottom.plot(x, shares, "o", color=colour, ms=6)
        bottom.axhline(100, color="#404040", lw=0.9, ls=":")
        bottom.set(xlabel=f"{COMPUTE_LABEL})", ylabel="share kept (%)")
        title = f"share of {full}'s gain over {base} that {block} keeps"
        undefined = "" if g.share.estimate else "\n(pooled share undefined: no gain to share)"
        bottom.set_title(title + undefined)
        compute_axis(bottom.xaxis, x.min(), x.max())
        bottom.margins(x=0.08)
        figure.align_ylabels()
    return figure


def loss_curves(curves: pd.DataFrame, baseline: str | None = None):
    """Training loss against tokens, one panel a size, a line a run, smoothed by a running mean.

    Each panel's loss axis leaves out the first tenth of training.

    `curves` has variant, size, seed, step, tokens, loss (from analysis.curves.load_curves).
    """
    sizes = list(dict.fromkeys(curves["size"]))
    variants = list(dict.fromkeys(curves["variant"]))
    looks = look(variants, _baseline_or_none(curves, baseline))
    with styled():
        columns = min(3, len(sizes))
        rows = -(-len(sizes) // columns)
        figure = new_figure(max(4.2, 2.9 * columns), 0.9 + 2.4 * rows)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for axis in axes[len(sizes) :]:
            axis.set_visible(False)
        lines, windows = {}, set()
        for axis, size in zip(axes, sizes, strict=False):
            of_size = curves[curves["size"] == size]
            for (variant, _), run in of_size.groupby(["variant", "seed"], sort=False):
                run = run.sort_values("step")
                window = max(1, len(run) // SMOOTHED_POINTS)
                windows.add(window)
                smooth = run["loss"].rolling(window).mean()
                style = {k: looks[variant][k] for k in ("color", "linestyle")}
                (lines[plain(variant)],) = axis.plot(
                    run["tokens"] / 1e6, smooth, lw=1.1, alpha=0.85, **style
                )
            axis.set_title(plain(size))
            axis.set_yscale("log")
            loss_axis(axis.yaxis)
            axis.set_ylim(*_curve_limits(of_size))
        figure.supxlabel("tokens (millions)", fontsize=10)
        span = "-".join(str(w) for w in sorted({min(windows), max(windows)}))
        smoothed = f", mean of {span} points" if max(windows) > 1 else ""
        figure.supylabel(f"training loss (nats){smoothed}", fontsize=10)
        legend(figure, lines, loc="outside upper center", ncols=min(4, len(lines)), fontsize=9)
    return figure


def save_all(
    df: pd.DataFrame, directory: Path, baseline: str | None = None, run: Path | None = None
) -> tuple[list[Path], dict[str, str]]:
    """Write every figure the table supports; returns the paths and {figure: why it is missing}."""
    figures = {
        "loss_vs_compute": lambda: loss_vs_compute(df, baseline),
        "multipliers_by_size": lambda: multipliers_by_size(df, baseline),
        "gap_by_size": lambda: gap_by_size(df, baseline),
    }
    if run is not None:
        figures["loss_curves"] = lambda: loss_curves(load_curves(run), baseline)
    if baseline is not None:
        baseline_of(df, baseline)
    written, skipped = [], {}
    for name, draw in figures.items():
        try:
            written += save(draw(), directory, name)
        except Refusal as e:
            skipped[name] = str(e)
    return written, skipped


def _law_or_none(df: pd.DataFrame, variant: str):
    if len(size_means(df, variant)) < 3:
        return None
    return fit(df[df["variant"] == variant]).laws[variant]


def _law_text(law) -> str:
    if law is None:
        return "no fit, under 3 sizes"
    return f"{law.A.value:.3f} $C^{{{-law.alpha.value:.4f}}}$"


def _baseline_or_none(df: pd.DataFrame, name: str | None) -> str | None:
    try:
        return baseline_of(df, name)
    except Refusal:
        return None


def _pooled_band(axis, estimate, colour: str, scale: float) -> None:
    if estimate:
        axis.axhspan(scale * estimate.low, scale * estimate.high, color=colour, alpha=0.15, lw=0)
        axis.axhline(scale * estimate.value, color=colour, lw=1.3)


def _curve_limits(curves: pd.DataFrame) -> tuple[float, float]:
    """Without the first tenth of training, which would flatten the rest into one line."""
    later = curves.loc[curves["tokens"] >= 0.1 * curves["tokens"].max(), "loss"]
    low, high = later.min(), later.max()
    margin = max((high / low) ** 0.05, LEAST_MARGIN)
    return low / margin, high * margin
