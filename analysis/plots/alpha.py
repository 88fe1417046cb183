"""Heat maps of depth attention: the weight of each source, and what the source is worth."""

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import CenteredNorm, Colormap, ListedColormap, Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from analysis.dynamics import require_metric
from analysis.errors import Refusal, listed
from analysis.plots.curves import chosen_size
from analysis.plots.depth import last_steps
from analysis.plots.text import heading, short, shown
from analysis.style import DIVERGING, FULL, SEQUENTIAL, Page

SITES = {"attention": "attention", "mlp": "MLP"}
MODES = {"remove": "removed", "average": "averaged"}
USUAL = 0.98  # share of the changes within the scale of colours
FEW = 0.05  # of the scale: smaller falls of the loss get no colours of their own
Maps = dict[tuple[str, str], pd.DataFrame]  # (variant, site) -> reading sublayer x source


def alpha_heatmaps(
    dynamics: pd.DataFrame,
    importance: pd.DataFrame | None = None,
    size: str | None = None,
    mode: str = "remove",
    page: Page = FULL,
) -> Figure:
    """Mean softmax weights, source x sublayer, attention and MLP sites apart; a variant a row.

    (After Attention Residuals, arXiv 2603.15031, Fig. 8.) The attention panels end with the read
    before the head, if there is one. Beside each map stands, where it was measured, the change of
    the loss without the source: weights are not importance. Both are means over seeds. Colours go
    with the root of a weight; of the changes, the largest 2% lie beyond the scale.

    Args:
      dynamics: from `analysis.dynamics.load_dynamics`.
      importance: from `analysis.dynamics.load_ablation`.
      size: default the last one with weights.
      mode: of the ablation, "remove" or "average"; the other one where it alone was measured.

    Raises:
      Refusal: "no-alpha": no run attends over depth; "no-metric", "missing-size", "bad-option".
    """
    if not (dynamics["metric"] == "alpha").any():
        raise Refusal("no-alpha", "The dynamics hold no weights: no run attends over depth.")
    rows = require_metric(dynamics, "alpha")
    rows = rows[(rows["source"] >= 0) & (rows["sublayer"] >= 0)]
    size = chosen_size(rows, size, None)
    rows = last_steps(rows[rows["size"] == size])
    weights = _maps(rows, "value")
    changes, mode = _importance(importance, size, mode)
    # Rows stand beside those of the weights, so that a read of one source, never cut, is blank.
    changes = {at: m.reindex(weights[at].index) for at, m in changes.items() if at in weights}
    variants = list(dict.fromkeys(rows["variant"]))
    panels = _arranged(variants, weights, changes, page.narrow)
    # Half of the scale is for weights below a quarter, as all are in a deep model.
    scales = {
        True: {"cmap": SEQUENTIAL, "norm": PowerNorm(0.5, vmin=0, vmax=1)},
        False: _scale_of_changes(changes),
    }
    with page.styled():
        n_rows, columns = len(panels), len(panels[0])
        height = 1.15 if page.narrow else 0.75 + 0.55 * page.width / columns
        figure = page.figure(height * n_rows + 0.45)
        axes = figure.subplots(n_rows, columns, squeeze=False)
        names = shown(variants, 0.8 * page.width / columns, page.small)
        images = {}
        for axis, (variant, site, is_weight) in zip(
            axes.ravel(), (panel for row in panels for panel in row), strict=True
        ):
            what = f"before {SITES[site]}" if is_weight else f"Δ loss, {SITES[site]}"
            axis.set_title(f"{names[variant]}\n{what}", fontsize=page.small)
            table = (weights if is_weight else changes).get((variant, site))
            if table is None:
                axis.text(0.5, 0.5, "not measured", ha="center", transform=axis.transAxes)
                axis.set_axis_off()
                continue
            images[is_weight] = _draw(axis, table, _last_read(rows, variant), scales[is_weight])
        for axis in axes[:, 0]:
            axis.set_ylabel("sublayer (index)")
        for axis in axes[-1]:
            axis.set_xlabel("source (index)")
        largest = max((np.nanmax(m) for m in changes.values()), default=0)
        _bars(figure, axes, images, f"Δ loss, {MODES[mode]}", largest, page)
        seeds = rows["seed"].nunique()
        said = f"size {short(size, page)}; means over tokens and {seeds} seed{'s' * (seeds > 1)}"
        said += "; source 0: embedding, s: sublayer s − 1 or block s; out: read before the head"
        heading(figure, page, said)
    return figure


def _arranged(variants, weights: Maps, changes: Maps, narrow: bool) -> list[list[tuple]]:
    """Rows of panels (variant, site, whether of weights): a change stands beside its weights, or
    below them where the page is narrow."""
    rows = []
    for variant in variants:
        of_weights = [(variant, site, True) for site in SITES]
        of_changes = [(variant, site, False) for site in SITES]
        measured = any((variant, site) in changes for site in SITES)
        if narrow or not changes:
            rows += [of_weights, *([of_changes] if measured else [])]
        else:
            rows.append([p for pair in zip(of_weights, of_changes, strict=True) for p in pair])
    return rows


def _scale_of_changes(maps: Maps) -> dict[str, Colormap | str | Normalize]:
    """About zero; from zero where nothing that counts lies below it.

    It ends below a few sources without which nothing works.
    """
    found = np.concatenate([m.to_numpy(float).ravel() for m in maps.values()] or [np.zeros(1)])
    usual = float(np.nanquantile(np.abs(found), USUAL)) or 1.0
    if np.nanmin(found) < -FEW * usual:
        return {"cmap": DIVERGING, "norm": CenteredNorm(halfrange=usual)}
    upper = colormaps[DIVERGING](np.linspace(0.5, 1, 256))
    return {"cmap": ListedColormap(upper), "norm": Normalize(0, usual)}


def _importance(df: pd.DataFrame | None, size: str, mode: str) -> tuple[Maps, str]:
    if mode not in MODES:
        raise Refusal("bad-option", f"The mode is '{mode}'; it must be one of {listed(MODES)}.")
    if df is None:
        return {}, mode
    df = df[(df["size"] == size) & (df["source"] >= 0) & (df["sublayer"] >= 0)]
    df = df[np.isfinite(df["delta"])]
    if mode not in set(df["mode"]) and len(df):
        mode = str(df["mode"].iloc[0])
    return _maps(df[df["mode"] == mode], "delta"), mode


def _maps(rows: pd.DataFrame, column: str) -> Maps:
    """{(variant, site): reading sublayer x source}, means over seeds; NaN where there is no such
    source. The read before the head counts as attention's."""
    site = rows["site"].astype(str).replace({"read": "attention"})
    rows = rows.assign(site=site)
    found = {}
    for (variant, name), of_panel in rows.groupby(["variant", "site"], sort=False):
        if name in SITES:
            table = of_panel.pivot_table(index="sublayer", columns="source", values=column)
            found[variant, name] = table.reindex(columns=range(int(table.columns.max()) + 1))
    return found


def _last_read(rows: pd.DataFrame, variant: str) -> int | None:
    """The sublayer that stands for the read before the head."""
    reads = rows.loc[(rows["variant"] == variant) & (rows["site"] == "read"), "sublayer"]
    return None if reads.empty else int(reads.max())


def _draw(axis, table: pd.DataFrame, last_read: int | None, scale: dict):
    image = axis.imshow(table.to_numpy(float), aspect="auto", interpolation="nearest", **scale)
    names = ["out" if s == last_read else str(s) for s in table.index]
    last = len(names) - 1
    step = next(k for k in (1, 2, 5, 10, 20, 50, 100, 10**6) if last / k <= 4)
    rows = [*range(0, last - step // 2, step), last]
    axis.set_yticks(rows, [names[i] for i in rows])
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.grid(False)
    axis.spines[["left", "bottom"]].set_visible(False)
    return image


def _bars(figure, axes, images: dict, change: str, largest: float, page: Page) -> None:
    """Side by side below the panels."""
    half = axes.shape[1] // 2
    for is_weight, image in images.items():
        below = axes[-1] if len(images) == 1 else axes[-1, :half] if is_weight else axes[-1, half:]
        options = {"location": "bottom", "shrink": 0.8, "aspect": 30}
        low, high = image.norm.vmin, image.norm.vmax
        beyond = largest > high
        if not is_weight:
            options |= {"extend": "both" if low < 0 else "max" if beyond else "neither"}
        bar = figure.colorbar(image, ax=list(below), **options)
        unit = f"(nats{f', to {largest:+.2g}' if beyond else ''})"
        between = "\n" if page.narrow else " "
        label = ("weight α", "(share, by its root)") if is_weight else (change, unit)
        bar.set_label(between.join(label))
        bar.locator = FixedLocator([0, 0.05, 0.25, 0.5, 1]) if is_weight else MaxNLocator(4)
        bar.formatter = FuncFormatter(lambda v, _: f"{v:.3g}")
        bar.minorticks_off()
        bar.update_ticks()
