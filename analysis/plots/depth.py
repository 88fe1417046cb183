"""Magnitudes by depth at the end of training, baseline against variants."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.dynamics import require_metric
from analysis.errors import Refusal
from analysis.plots.axes import counts, log_limits, values
from analysis.plots.curves import chosen_size
from analysis.plots.loss import baseline_or_none
from analysis.plots.text import heading, short, shown
from analysis.stats import t_quantile
from analysis.style import FULL, Page, band

SITES = {"attention": "attention", "mlp": "MLP", "block": "blocks of layers"}


def output_by_depth(
    dynamics: pd.DataFrame,
    size: str | None = None,
    baseline: str | None = None,
    page: Page = FULL,
) -> Figure:
    """RMS of each sublayer's output against its layer, attention and MLP apart.

    (After Attention Residuals, arXiv 2603.15031, Fig. 5 b.) A line a variant, the geometric mean
    over its seeds at the last step measured, with 95% t intervals where there are two or more.

    Args:
      dynamics: from `analysis.dynamics.load_dynamics`.
      size: default the last that was run with the baseline and another variant, else the last.

    Raises:
      Refusal: "no-metric", "missing-size", "no-depth".
    """
    return _by_depth(dynamics, "output_rms", "output RMS (dimensionless)", size, baseline, page)


def input_by_depth(
    dynamics: pd.DataFrame,
    size: str | None = None,
    baseline: str | None = None,
    page: Page = FULL,
) -> Figure:
    """RMS of what each sublayer reads, before its norm, against its layer.

    Where outputs are summed it grows with depth, so that each counts for less. Otherwise as
    `output_by_depth`.
    """
    return _by_depth(dynamics, "input_rms", "input RMS (dimensionless)", size, baseline, page)


def gradient_by_depth(
    dynamics: pd.DataFrame,
    size: str | None = None,
    baseline: str | None = None,
    page: Page = FULL,
) -> Figure:
    """Gradient norm of each sublayer's parameters against its layer, and of blocks of layers.

    (Fig. 5 c, of the same paper.) Otherwise as `output_by_depth`.
    """
    return _by_depth(
        dynamics, "grad_norm", "gradient norm (nats / unit weight)", size, baseline, page
    )


def _by_depth(dynamics, metric: str, label: str, size, baseline, page: Page) -> Figure:
    rows = require_metric(dynamics, metric)
    base = baseline_or_none(rows, baseline)
    size = chosen_size(rows, size, base)
    rows = last_steps(rows[(rows["size"] == size) & (rows["sublayer"] >= 0) & (rows["value"] > 0)])
    sites = [s for s in SITES if s in set(rows["site"])]
    if not sites:
        raise Refusal("no-depth", f"Size '{size}' has no {metric} above 0 of single sublayers.")
    variants = list(dict.fromkeys(rows["variant"]))
    looks = page.look(dict.fromkeys(dynamics["variant"]), base)
    names = shown(variants, 0.4 * page.width, page.small)
    n_rows, columns = page.grid(len(sites), least=1.8)
    with page.styled():
        height = (1.5 if page.narrow else 2.7) * n_rows
        figure = page.figure(height)
        axes = figure.subplots(n_rows, columns, sharey=True, squeeze=False).ravel()
        handles, several = {}, False
        for axis, site in zip(axes, sites, strict=False):
            of_site = rows[rows["site"] == site]
            for variant in variants:
                layer, mean, low, high = _over_seeds(of_site[of_site["variant"] == variant])
                if not len(layer):
                    continue
                style = looks[variant] | {"mfc": "none"}
                style |= {"markevery": max(1, len(layer) // 16)}
                (handles[names[variant]],) = axis.plot(layer, mean, **style)
                several |= bool(np.isfinite(low).any())
                axis.fill_between(
                    layer, low, high, color=style["color"], alpha=band(len(variants)), lw=0
                )
            axis.set(yscale="log", title=SITES[site])
            axis.set_xlabel("first layer (index)" if site == "block" else "layer (index)")
            counts(axis.xaxis)
        for axis in axes[len(sites) :]:
            axis.set_visible(False)
        low, high = log_limits(rows["value"].min(), rows["value"].max())
        values(axes[0].yaxis, low, high, height / n_rows - 0.6)
        axes[0].set_ylim(low, high)
        interval = "bands: 95% over seeds" if several else "one seed, no interval"
        heading(
            figure, page, f"size {short(size, page)}; {_steps(rows)}; {interval}", handles, label
        )
    return figure


def last_steps(rows: pd.DataFrame) -> pd.DataFrame:
    """Of each run, what was measured last."""
    if rows.empty:
        return rows
    last = rows.groupby(["variant", "size", "seed"], sort=False)["step"].transform("max")
    return rows[rows["step"] == last]


def _steps(rows: pd.DataFrame) -> str:
    low, high = rows["step"].min(), rows["step"].max()
    return f"step {high}" if low == high else f"each run's last step ({low} to {high})"


def _over_seeds(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """[n_layers] each: layer, geometric mean, ends of its interval (NaN with one seed)."""
    logs = (
        np.log(rows["value"].astype(float)).groupby(rows["sublayer"]).agg(["mean", "std", "size"])
    )
    layer = logs.index.to_numpy() // 2
    mean, n = logs["mean"].to_numpy(), logs["size"].to_numpy()
    t = np.array([t_quantile(0.95, k - 1) if k > 1 else np.nan for k in n])
    half = t * logs["std"].to_numpy() / np.sqrt(n)
    return layer, np.exp(mean), np.exp(mean - half), np.exp(mean + half)
