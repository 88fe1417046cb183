"""Training loss as it falls: all sizes by tokens, and one size by step against the baseline."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.errors import Refusal, did_you_mean, listed
from analysis.plots.axes import LEAST_MARGIN, counts, few, hide, values
from analysis.plots.loss import baseline_or_none
from analysis.plots.text import heading, short, shown
from analysis.stats import t_quantile
from analysis.style import FULL, GREY, Page, band

SMOOTHED = 100  # a curve is averaged over 1/100 of its points
DRAWN = 500  # points of a line; more cannot be seen
SMOOTHING = "running mean over 1% of a run"


def loss_curves(curves: pd.DataFrame, baseline: str | None = None, page: Page = FULL) -> Figure:
    """Training loss against tokens, one panel a size, a line a run, smoothed by a running mean.

    Each panel's loss axis leaves out the first tenth of training.

    Args:
      curves: variant, size, seed, step, tokens, loss (from `analysis.curves.load_curves`).

    Raises:
      Refusal: "no-curves": no loss is finite.
    """
    curves = _finite(curves)
    sizes = list(dict.fromkeys(curves["size"]))
    variants = list(dict.fromkeys(curves["variant"]))
    looks = page.look(variants, baseline_or_none(curves, baseline))
    names = shown(variants, 0.4 * page.width, page.small)
    unit, factor = _token_unit(curves["tokens"].max())
    with page.styled():
        rows, columns = page.grid(len(sizes))
        height = (1.35 if page.narrow else 2.1) * rows + 0.3
        figure = page.figure(height)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        titles = shown(sizes, 0.8 * page.width / columns, page.normal)
        handles, smoothed = {}, False
        for axis, size in zip(axes, sizes, strict=False):
            of_size = curves[curves["size"] == size]
            for (variant, _), run in of_size.groupby(["variant", "seed"], sort=False):
                run = run.sort_values("step")
                smooth, window = _smooth(run["loss"])
                smoothed |= window > 1
                style = {k: looks[variant][k] for k in ("color", "linestyle")}
                line = _thinned(run["tokens"].to_numpy() / factor, smooth)
                (handles[names[variant]],) = axis.plot(*line, alpha=0.85, **style)
            axis.set_title(titles[size])
            axis.set_yscale("log")
            low, high = _limits(of_size)
            values(axis.yaxis, low, high, height / rows - 0.7)
            axis.set_ylim(low, high)
            few(axis.xaxis, 0.75 * page.width / columns)
        hide(axes, len(sizes), columns)
        figure.supxlabel(f"tokens{unit}", fontsize=page.normal)
        heading(figure, page, SMOOTHING if smoothed else "", handles, "training loss (nats)")
    return figure


def loss_by_step(
    curves: pd.DataFrame,
    size: str | None = None,
    baseline: str | None = None,
    page: Page = FULL,
) -> Figure:
    """Training loss of one size against the step, and below it the difference to the baseline.

    Differences are taken within a seed and averaged over the seeds that both have, with pointwise
    95% t intervals where there are two or more. The axes leave out the first tenth of training.

    Args:
      curves: as of `loss_curves`.
      size: default the last that was run with the baseline and another variant, else the last.

    Raises:
      Refusal: "no-curves"; "missing-size".
    """
    curves = _finite(curves)
    base = baseline_or_none(curves, baseline)
    size = chosen_size(curves, size, base)
    runs = {
        key: run.sort_values("step")
        for key, run in curves[curves["size"] == size].groupby(["variant", "seed"], sort=False)
    }
    variants = list(dict.fromkeys(variant for variant, _ in runs))
    looks = page.look(dict.fromkeys(curves["variant"]), base)
    names = shown(variants, 0.4 * page.width, page.small)
    differences = {v: _difference(runs, v, base) for v in variants if v != base}
    differences = {v: d for v, d in differences.items() if d is not None}
    with page.styled():
        tall = (
            page.width * (0.75 if differences else 0.5)
            if page.narrow
            else 2.6 + 1.6 * bool(differences)
        )
        figure = page.figure(tall)
        n = 2 if differences else 1
        ratios = {"height_ratios": [3, 2][:n]}
        axes = figure.subplots(n, 1, sharex=True, squeeze=False, gridspec_kw=ratios).ravel()
        handles = {}
        for (variant, _), run in runs.items():
            style = {k: looks[variant][k] for k in ("color", "linestyle")}
            line = _thinned(run["step"].to_numpy(), _smooth(run["loss"])[0])
            (handles[names[variant]],) = axes[0].plot(*line, alpha=0.85, **style)
        low, high = _limits(curves[curves["size"] == size])
        axes[0].set(yscale="log", ylabel="training loss (nats)")
        values(axes[0].yaxis, low, high, tall / n - 0.5)
        axes[0].set_ylim(low, high)
        opacity = band(len(differences))
        for variant, (step, mean, half) in differences.items():
            style = {k: looks[variant][k] for k in ("color", "linestyle")}
            axes[1].plot(step, 1000 * mean, **style)
            around = {"color": style["color"], "alpha": opacity, "lw": 0}
            axes[1].fill_between(step, 1000 * (mean - half), 1000 * (mean + half), **around)
        if differences:
            axes[1].axhline(0, color=GREY, lw=0.9, ls=":")
            over = shown([base], 0.09 * page.width + 0.25, page.normal)[base]
            axes[1].set_ylabel(f"minus {over}\n(millinats)")
            axes[1].set_ylim(*_difference_limits(differences))
        axes[-1].set_xlabel("optimizer step (count)")
        counts(axes[-1].xaxis)
        figure.align_ylabels()
        heading(figure, page, _said(size, runs, differences, base, page), handles)
    return figure


def chosen_size(df: pd.DataFrame, size: str | None, baseline: str | None) -> str:
    """`size` if the frame has it; by default the last one with the baseline and another variant.

    Raises:
      Refusal: "missing-size".
    """
    sizes = [str(s) for s in dict.fromkeys(df["size"])]
    if size is not None:
        if size not in sizes:
            raise Refusal(
                "missing-size",
                f"There is no size '{size}' here, only {listed(sizes)}.{did_you_mean(size, sizes)}",
            )
        return size
    of_size = {s: set(df.loc[df["size"] == s, "variant"]) for s in sizes}
    compared = [s for s in sizes if baseline in of_size[s] and len(of_size[s]) > 1]
    return (compared or sizes)[-1]


def _said(size: str, runs: dict, differences: dict, base: str | None, page: Page) -> str:
    parts = [f"size {short(size, page)}"]
    if max(len(run) for run in runs.values()) >= 2 * SMOOTHED:
        parts.append(SMOOTHING)
    if any(np.isfinite(half).any() for _, _, half in differences.values()):
        parts.append("bands: pointwise 95% over paired seeds")
    elif differences:
        parts.append("one paired seed: differences without interval")
    else:
        parts.append(f"nothing to compare with {short(base, page)}" if base else "no baseline")
    return "; ".join(parts)


def _difference(runs: dict, variant: str, base: str | None):
    """(step, mean, half-width of its interval or NaN), [n] each; None without a seed in common."""
    seeds = [seed for v, seed in runs if v == variant and (base, seed) in runs]
    if not seeds:
        return None
    last = min(runs[v, s]["step"].max() for v in (variant, base) for s in seeds)
    step = runs[base, seeds[0]]["step"].to_numpy()
    step = step[step <= last]
    found = []
    for seed in seeds:
        own, other = (
            np.interp(step, runs[v, seed]["step"], runs[v, seed]["loss"]) for v in (variant, base)
        )
        found.append(_smooth(pd.Series(own - other))[0])
    found = np.array(found)
    half = np.full(len(step), np.nan)
    if len(seeds) > 1:
        se = found.std(axis=0, ddof=1) / np.sqrt(len(seeds))
        half = t_quantile(0.95, len(seeds) - 1) * se
    thin = _kept(len(step))
    return step[thin], found.mean(axis=0)[thin], half[thin]


def _difference_limits(differences: dict) -> tuple[float, float]:
    """Millinats after the first tenth; bands as far as they are not far wider than the means."""
    later = [(mean[len(mean) // 10 :], half[len(mean) // 10 :])
             for _, mean, half in differences.values()]  # fmt: skip
    means = np.concatenate([[0.0], *(mean for mean, _ in later)])
    ends = np.concatenate([np.r_[mean - half, mean + half] for mean, half in later])
    low, high = np.nanmin(means), np.nanmax(means)
    span = max(high - low, 1e-6)
    if np.isfinite(ends).any():
        low = max(min(low, np.nanmin(ends)), low - span)
        high = min(max(high, np.nanmax(ends)), high + span)
    return 1000 * (low - 0.05 * span), 1000 * (high + 0.05 * span)


def _finite(curves: pd.DataFrame) -> pd.DataFrame:
    """Without losses that no log axis shows."""
    kept = curves[np.isfinite(curves["loss"]) & (curves["loss"] > 0)]
    if kept.empty:
        raise Refusal("no-curves", "No logged training loss is finite and above 0.")
    return kept


def _smooth(loss: pd.Series) -> tuple[np.ndarray, int]:
    """The running mean over 1/SMOOTHED of the points, and over how many that is."""
    window = max(1, len(loss) // SMOOTHED)
    return loss.rolling(window).mean().to_numpy(), window


def _kept(n: int) -> np.ndarray:
    """Which of n points to draw: every so many, and the last."""
    step = max(1, n // DRAWN)
    return np.arange(n - 1, -1, -step)[::-1]


def _thinned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    kept = _kept(len(x))
    return x[kept], y[kept]


def _limits(curves: pd.DataFrame) -> tuple[float, float]:
    """Without the first tenth of training, which would flatten the rest into one line."""
    later = curves.loc[curves["tokens"] >= 0.1 * curves["tokens"].max(), "loss"]
    low, high = later.min(), later.max()
    margin = max((high / low) ** 0.05, LEAST_MARGIN)
    return low / margin, high * margin


def _token_unit(most: float) -> tuple[str, float]:
    for unit, factor in ((" (billions)", 1e9), (" (millions)", 1e6), (" (thousands)", 1e3)):
        if most >= factor:
            return unit, factor
    return " (count)", 1.0
