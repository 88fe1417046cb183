"""What Block gives up against Full, by size."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.gap import gap
from analysis.plots.axes import COMPUTE, powers
from analysis.plots.text import shown, wrapped
from analysis.style import FULL, GREY, Page

WIDEST_SHARE = 300.0  # per cent of an interval shown: that of next to no gain is far wider


def gap_by_size(
    df: pd.DataFrame, baseline: str | None = None, page: Page = FULL, **variants: str
) -> Figure:
    """L_block - L_full by size with its pooled interval, and the share of Full's gain kept.

    Args:
      df: from `analysis.load`.
      **variants: gap()'s `full` and `block`.

    Raises:
      Refusal: those of `analysis.gap`.
    """
    g = gap(df, baseline=baseline, **variants)
    colour = page.look([g.baseline, g.block, g.full], g.baseline)[g.block]["color"]
    x = np.array([row.pflops_days for row in g.by_size])
    names = shown([g.baseline, g.block, g.full], 0.28 * page.width, page.normal)
    base, block, full = (names[v] for v in (g.baseline, g.block, g.full))
    with page.styled():
        figure = page.figure(0.95 * page.width if page.narrow else 4.6)
        top, bottom = figure.subplots(2, 1, sharex=True)
        _pooled_band(top, g.pooled, colour, scale=1000)
        for row in g.by_size:
            if row.gap_interval:
                ends = [1000 * row.gap_interval.low, 1000 * row.gap_interval.high]
                top.plot([row.pflops_days] * 2, ends, color=colour, lw=1.0)
        top.plot(x, [1000 * row.gap for row in g.by_size], "o", color=colour)
        top.axhline(0, color=GREY, lw=0.9, ls=":")
        top.set(xscale="log", ylabel="gap (millinats)")
        bars = ", bars: paired seeds" if any(r.gap_interval for r in g.by_size) else ""
        band = "band: pooled 95% interval" if g.pooled else "one size: no pooled interval"
        title = f"{block} - {full}; {band}{bars}"
        top.set_title(wrapped(title, 0.8 * page.width, page.normal))

        _pooled_band(bottom, g.share.estimate, colour, scale=100)
        shares = np.array(
            [np.nan if r.share_kept is None else 100 * r.share_kept for r in g.by_size]
        )
        bottom.plot(x, shares, "o", color=colour)
        bottom.axhline(100, color=GREY, lw=0.9, ls=":")
        bottom.set(xlabel=f"{COMPUTE})", ylabel="share kept (%)")
        bottom.set_ylim(*_share_limits(shares, g.share.estimate))
        title = f"share of {full}'s gain over {base} that {block} keeps"
        undefined = "" if g.share.estimate else " (pooled share undefined: no gain to share)"
        bottom.set_title(wrapped(title + undefined, 0.8 * page.width, page.normal))
        powers(bottom.xaxis, x.min(), x.max(), 0.8 * page.width)
        bottom.margins(x=0.08)
        figure.align_ylabels()
    return figure


def _pooled_band(axis, estimate, colour: str, scale: float) -> None:
    if estimate:
        axis.axhspan(scale * estimate.low, scale * estimate.high, color=colour, alpha=0.15, lw=0)
        axis.axhline(scale * estimate.value, color=colour)


def _share_limits(shares: np.ndarray, estimate) -> tuple[float, float]:
    """All points, and the interval as far as it is not wide; per cent."""
    held = [100.0, *shares[np.isfinite(shares)]]
    if estimate:
        ends = np.array([estimate.low, estimate.value, estimate.high]) * 100
        held += np.clip(ends, min(-WIDEST_SHARE, *held), max(WIDEST_SHARE, *held)).tolist()
    margin = max(0.08 * (max(held) - min(held)), 1.0)
    return min(held) - margin, max(held) + margin
