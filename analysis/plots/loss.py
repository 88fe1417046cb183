"""Loss against compute: every run, the laws with their bands, and what the laws leave."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.cells import size_means
from analysis.errors import Refusal
from analysis.fit import PowerLaw, fit
from analysis.plots.axes import COMPUTE, decimals, log_limits, powers
from analysis.plots.text import heading, shown
from analysis.style import FULL, Page, band
from analysis.table import baseline as baseline_of


def loss_vs_compute(df: pd.DataFrame, baseline: str | None = None, page: Page = FULL) -> Figure:
    """Every run, the fitted laws with 95% confidence bands, and residuals below.

    The legend has each exponent with its interval. A variant with fewer than three sizes, or whose
    sizes have one compute, is drawn without a line, and the legend says so.

    Args:
      df: from `analysis.load`.
    """
    variants = list(df["variant"].unique())
    laws = {v: _law_or_reason(df, v) for v in variants}
    fitted = any(isinstance(law, PowerLaw) for law in laws.values())
    looks = page.look(variants, baseline_or_none(df, baseline))
    names = shown(variants, 0.45 * page.width, page.small)
    x = df["pflops_days"]
    with page.styled():
        height = 0.78 * page.width if page.narrow else 4.6
        figure = page.figure(height if fitted else 0.7 * height)
        n, ratios = (2, [3, 1.15]) if fitted else (1, [1])
        axes = figure.subplots(n, 1, sharex=True, squeeze=False, height_ratios=ratios).ravel()
        top, opacity, handles = axes[0], band(len(variants)), {}
        for i, (variant, law) in enumerate(laws.items()):
            runs, style = df[df["variant"] == variant], looks[variant]
            dots = {"color": style["color"], "marker": style["marker"], "mfc": "none"}
            (handle,) = top.plot(runs["pflops_days"], runs["loss"], linestyle="", **dots)
            if isinstance(law, PowerLaw):
                grid = np.geomspace(x.min() / 1.15, x.max() * 1.15, 100)
                loss, low, high = law.predict(grid)
                top.plot(grid, loss, color=style["color"], linestyle=style["linestyle"])
                top.fill_between(grid, low, high, color=style["color"], alpha=opacity, lw=0)
                (handle,) = top.plot([], [], linestyle=style["linestyle"], **dots)
                residuals = 100 * (runs["loss"] / law.predict(runs["pflops_days"])[0] - 1)
                # Variants of one size would hide each other: steps of a fixed share of the axis.
                share = min(0.012, 0.08 / len(variants)) * (i - (len(variants) - 1) / 2)
                beside = runs["pflops_days"] * (x.max() / x.min()) ** share
                axes[1].plot(beside, residuals, linestyle="", **dots)
            handles[f"{names[variant]}: {_law_text(law)}"] = handle
        top.set(xscale="log", yscale="log", ylabel="validation loss (nats)")
        top.set_ylim(*log_limits(df["loss"].min(), df["loss"].max(), share=0.08))
        decimals(top.yaxis)
        powers(axes[-1].xaxis, x.min(), x.max(), 0.8 * page.width)
        convention = df.attrs.get("flops_convention") or "convention not stated"
        convention = shown([convention], 0.4 * page.width, page.normal)[convention]
        axes[-1].set_xlabel(f"{COMPUTE}, {convention})")
        if fitted:
            axes[1].axhline(0, color="#808080", lw=0.8, zorder=1)
            axes[1].margins(y=0.15)
            axes[1].set_ylabel("residual (%)")
        lines = "; lines: power laws L ~ $C^{-α}$; bands: 95% of the mean curve" if fitted else ""
        beside = "; residuals of a size stand side by side" if fitted and len(variants) > 1 else ""
        heading(figure, page, f"points: runs{lines}{beside}", handles)
        figure.align_ylabels()
    return figure


def baseline_or_none(df: pd.DataFrame, name: str | None) -> str | None:
    """The baseline, None where no variant is known to be one."""
    try:
        return baseline_of(df, name)
    except Refusal:
        return None


def _law_or_reason(df: pd.DataFrame, variant: str) -> PowerLaw | str:
    n = len(size_means(df, variant))
    if n < 3:
        return f"no fit of {n} size{'' if n == 1 else 's'}"
    try:
        return fit(df[df["variant"] == variant]).laws[variant]
    except Refusal as reason:
        return f"no fit ({reason.code})"


def _law_text(law: PowerLaw | str) -> str:
    if isinstance(law, str):
        return law
    alpha = law.alpha
    return f"α {alpha.value:.4f} [{alpha.low:.4f}, {alpha.high:.4f}]"
