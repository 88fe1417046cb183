"""What variants cost beside FLOPs: time of a step and memory, as ratios to the baseline."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.errors import Refusal
from analysis.plots.axes import at, values
from analysis.plots.text import heading, short, shown
from analysis.stats import Estimate, mean_interval
from analysis.style import FULL, GREY, Page
from analysis.table import baseline as baseline_of

# Of what a step takes, these decide more than any variant does.
HARDWARE = ("device_kind", "n_devices", "n_processes", "mesh")


def cost_by_variant(df: pd.DataFrame, baseline: str | None = None, page: Page = FULL) -> Figure:
    """A row a variant: each size's ratio to the baseline (points), and their mean with interval.

    Ratios are taken within a size and seed, on the same hardware; the mean is geometric, with a 95%
    t interval over sizes (over seeds, where there is one size) if there are two or more.

    Args:
      df: from `analysis.load`, with tokens_per_second, or train_seconds and steps; optionally
        with peak_memory_bytes.

    Raises:
      Refusal: "no-baseline"; "one-variant"; "no-times": no such columns; "no-pairs": no variant
        shares size, seed and hardware with the baseline.
    """
    base = baseline_of(df, baseline)
    if df["variant"].nunique() == 1:
        raise Refusal("one-variant", f"The table has only '{base}'; there is nothing to compare.")
    costs = {"step time (ratio)": _seconds(df), "memory (ratio)": _memory(df)}
    ratios = {label: _ratios(df, cost, base) for label, cost in costs.items() if cost is not None}
    if not ratios:
        raise Refusal(
            "no-times",
            "The table has neither tokens_per_second nor train_seconds and steps, nor peak memory.",
        )
    ratios = {label: by_variant for label, by_variant in ratios.items() if by_variant}
    if not ratios:
        raise Refusal(
            "no-pairs",
            f"No variant has a run of the size, seed and hardware of a run of '{base}' with times.",
        )
    variants = [v for v in df["variant"].unique() if any(v in found for found in ratios.values())]
    looks = page.look(df["variant"].unique(), base)
    names = shown(variants, 0.3 * page.width, page.small)
    with page.styled():
        row = 0.2 if page.narrow else 0.3
        figure = page.figure(0.7 + row * max(len(variants), 2))
        axes = figure.subplots(1, len(ratios), sharey=True, squeeze=False).ravel()
        one = True
        for axis, (label, by_variant) in zip(axes, ratios.items(), strict=True):
            axis.axvline(1, color=GREY, lw=0.9, ls=":")
            drawn = [1.0]
            for i, variant in enumerate(variants):
                if variant in by_variant:
                    drawn += _row(axis, i, by_variant[variant], looks[variant])
                    one &= mean_ratio(by_variant[variant])[1] is None
            axis.set(xscale="log", xlabel=label)
            values(axis.xaxis, min(drawn), max(drawn), 0.6 * page.width / len(ratios))
            axis.margins(x=0.08)
            at(axis.yaxis, range(len(variants)), [names[v] for v in variants])
            axis.set_ylim(len(variants) - 0.5, -0.5)
        axes[0].set_ylabel("variant")
        interval = (
            "one size and seed, no interval" if one else "diamonds, bars: mean with 95% interval"
        )
        peak = "memory: peak; " if len(ratios) > 1 else ""
        heading(figure, page, f"over {short(base, page)}, paired; {peak}points: sizes; {interval}")
    return figure


def mean_ratio(ratios: pd.Series) -> tuple[float, Estimate | None]:
    """Geometric mean of ratios indexed by (size, seed), and its 95% interval if there is one."""
    logs = np.log(ratios)
    by_size = logs.groupby(level="size", sort=False).mean()
    units = by_size if len(by_size) > 1 else logs
    interval = mean_interval(units.to_numpy(), 0.95).exp() if len(units) > 1 else None
    return float(np.exp(units.mean())), interval


def _ratios(df: pd.DataFrame, cost: pd.Series, base: str) -> dict[str, pd.Series]:
    """{variant: ratios by (size, seed)} of pairs on the same hardware."""
    columns = [c for c in HARDWARE if c in df]
    hardware = df.groupby(columns, dropna=False).ngroup() if columns else 0
    cells = pd.DataFrame(
        {"variant": df["variant"], "size": df["size"], "seed": df["seed"], "cost": cost,
         "hardware": hardware}
    )  # fmt: skip
    cells = cells[np.isfinite(cells["cost"]) & (cells["cost"] > 0)]
    keys = ["size", "seed", "hardware"]
    of_base = cells[cells["variant"] == base].set_index(keys)["cost"]
    found = {}
    for variant, rows in cells[cells["variant"] != base].groupby("variant", sort=False):
        ratios = (rows.set_index(keys)["cost"] / of_base).dropna()
        if len(ratios):
            found[variant] = ratios
    return found


def _seconds(df: pd.DataFrame) -> pd.Series | None:
    """Seconds a token or a step, which within a size are the same up to a factor."""
    if "tokens_per_second" in df:  # empty where other devices did a part
        return 1 / pd.to_numeric(df["tokens_per_second"], errors="coerce")
    if "train_seconds" in df and "steps" in df:
        seconds, steps = (pd.to_numeric(df[c], errors="coerce") for c in ("train_seconds", "steps"))
        return seconds / steps
    return None


def _memory(df: pd.DataFrame) -> pd.Series | None:
    if "peak_memory_bytes" in df:
        return pd.to_numeric(df["peak_memory_bytes"], errors="coerce")
    return None


def _row(axis, i: int, ratios: pd.Series, style: dict) -> list[float]:
    """Draws one variant, and returns the values drawn."""
    by_size = np.exp(np.log(ratios).groupby(level="size", sort=False).mean()).to_numpy()
    mean, interval = mean_ratio(ratios)
    axis.plot(by_size, np.full(len(by_size), i), "o", color=style["color"], mfc="none", alpha=0.6)
    axis.plot([mean], [i], "D", color=style["color"])
    if interval is None:
        return [mean, *by_size]
    axis.plot([interval.low, interval.high], [i, i], color=style["color"])
    return [mean, *by_size, interval.low, interval.high]
