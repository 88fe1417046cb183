"""The final loss against the number of blocks of Block AttnRes."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.errors import Refusal
from analysis.plots.axes import at, hide
from analysis.plots.loss import baseline_or_none
from analysis.plots.text import heading, shown
from analysis.stats import mean_interval
from analysis.style import FULL, Page

_SPLIT = ("n_blocks", "sublayers_per_block", "boundaries")


def block_sweep(
    df: pd.DataFrame,
    baseline: str | None = None,
    full: str = "attnres_full",
    page: Page = FULL,
) -> Figure:
    """One panel a size: mean loss over seeds, with 95% t intervals where there are two or more.

    (After Attention Residuals, arXiv 2603.15031, Fig. 6.) The baseline and Full are lines across,
    with their intervals as bands.

    Args:
      df: from `analysis.load`, with a column n_blocks that is empty for other variants (see
        `with_n_blocks`).

    Raises:
      Refusal: "no-block-sweep": no size was run with two numbers of blocks or more.
    """
    df = df if "n_blocks" in df else df.assign(n_blocks=np.nan)
    swept = df[df["n_blocks"].notna()]
    counts = swept.groupby("size", sort=False)["n_blocks"].nunique()
    sizes = [size for size, n in counts.items() if n > 1]
    if not sizes:
        raise Refusal(
            "no-block-sweep",
            "No size was run with two numbers of blocks or more (variants of attnres_block that "
            "differ in n_blocks or sublayers_per_block).",
        )
    base = baseline_or_none(df, baseline)
    references = [v for v in (base, full) if v is not None and v in set(df["variant"])]
    looks = page.look(df["variant"].unique(), base)
    of_sweep = looks[_first(swept["variant"], references)]
    names = shown([*references], 0.4 * page.width, page.small)
    rows, columns = page.grid(len(sizes), least=2.3)
    with page.styled():
        figure = page.figure((1.5 if page.narrow else 2.5) * rows)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        titles = shown(sizes, 0.8 * page.width / columns, page.normal)
        handles = {}
        for axis, size in zip(axes, sizes, strict=False):
            of_size = df[df["size"] == size]
            points = swept[swept["size"] == size].groupby("n_blocks")["loss"]
            _across(axis, of_size, references, looks, names, handles)
            style = {"color": of_sweep["color"], "marker": of_sweep["marker"]}
            handles["blocks"] = _points(axis, points, style)
            axis.set_xscale("log", base=2)
            ticks = _sparse(sorted(points.groups))
            at(axis.xaxis, ticks)
            axis.margins(x=0.1, y=0.1)
            axis.set(title=titles[size], xlabel="blocks (count)")
        for axis in axes[::columns]:
            axis.set_ylabel("validation loss (nats)")
        hide(axes, len(sizes), columns)
        several = (
            df[df["size"].isin(sizes)].groupby(["variant", "size"])["seed"].nunique().max() > 1
        )
        note = "bars and bands: 95% over seeds" if several else "one seed, no interval"
        heading(figure, page, note, handles)
    return figure


def with_n_blocks(df: pd.DataFrame, run_dir: str | Path) -> pd.DataFrame:
    """The table with a column n_blocks, of variants of attnres_block that differ in nothing else.

    Where several groups of them differ in other options too, it is the largest group's.

    Raises:
      Refusal: "no-grid": grid.json is missing or damaged.
    """
    path = Path(run_dir) / "grid.json"
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        found = {
            (cell["size"], cell["variant"]): (_n_blocks(cell["model"]), _others(cell["model"]))
            for cell in cells
            if cell["model"]["residual"]["name"] == "attnres_block"
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise Refusal(
            "no-grid",
            f"'{path}' is missing or damaged, so the numbers of blocks are not known.",
        ) from e
    groups = Counter(others for _, others in found.values())
    largest = groups.most_common(1)[0][0] if groups else None
    blocks = {key: n for key, (n, others) in found.items() if others == largest}
    keys = zip(df["size"], df["variant"], strict=True)
    return df.assign(n_blocks=[blocks.get(key, np.nan) for key in keys])


def _n_blocks(model: dict) -> float:
    options, n_sublayers = model["residual"]["options"], 2 * model["n_layers"]
    if options.get("boundaries"):
        return float("nan")  # blocks of several sizes
    if options.get("sublayers_per_block"):
        return float(-(-n_sublayers // options["sublayers_per_block"]))
    return float(options.get("n_blocks") or 8)


def _others(model: dict) -> str:
    options = model["residual"]["options"]
    return json.dumps({k: v for k, v in options.items() if k not in _SPLIT}, sort_keys=True)


def _across(axis, of_size: pd.DataFrame, references, looks, names, handles) -> None:
    for variant in references:
        losses = of_size.loc[of_size["variant"] == variant, "loss"]
        if losses.empty:
            continue
        style = {k: looks[variant][k] for k in ("color", "linestyle")}
        if len(losses) > 1:
            interval = mean_interval(losses, 0.95)
            axis.axhspan(interval.low, interval.high, color=style["color"], alpha=0.10, lw=0)
        handles[names[variant]] = axis.axhline(losses.mean(), **style)


def _points(axis, groups, style: dict):
    x = np.array(sorted(groups.groups), float)
    means = groups.mean().to_numpy()
    for n, losses in groups:
        if len(losses) > 1:
            interval = mean_interval(losses, 0.95)
            axis.plot([n, n], [interval.low, interval.high], color=style["color"])
    return axis.plot(x, means, mfc="white", **style)[0]


def _first(variants: pd.Series, references: list[str]) -> str:
    """The variant whose colour the sweep has: one that is not drawn across."""
    return next((v for v in variants if v not in references), variants.iloc[0])


def _sparse(numbers: list[float]) -> list[float]:
    """Those at least a factor of 1.4 apart, which have room for a label each."""
    kept: list[float] = []
    for n in numbers:
        if not kept or n >= 1.4 * kept[-1]:
            kept.append(n)
    return kept
