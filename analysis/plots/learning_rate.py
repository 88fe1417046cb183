"""Sweeps of the learning rate."""

import re

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.errors import Refusal, listed
from analysis.learning_rate import BestRate, best_rate
from analysis.plots.axes import decimals, hide, log_limits, powers
from analysis.plots.text import heading, shown
from analysis.style import FULL, MARKERS, Page, shades

COLUMNS = ("variant", "size", "learning_rate", "loss")
_LABEL = re.compile(r"(.+)-lr([0-9.e+-]+)")  # what `scaling tune` calls a variant at a rate


def learning_rate_sweep(df: pd.DataFrame, page: Page = FULL) -> Figure:
    """One panel a variant, a curve a size: loss against the peak learning rate, mean over seeds.

    Dashed is the parabola in ln(learning rate) through the three rates about the best, with a star
    at its minimum. In brackets are the rates within which it rises by less than 0.01 nats, which is
    no confidence interval. A sweep whose best rate lies at an end has no star.

    Args:
      df: variant, size, learning_rate, loss (nats; not finite where a run diverged).

    Raises:
      Refusal: "missing-columns"; "no-sweep": no variant was run at one size with three rates.
    """
    missing = [c for c in COLUMNS if c not in df]
    if missing:
        raise Refusal("missing-columns", f"The table lacks {listed(missing)}, so no sweep.")
    means = df.groupby(["variant", "size", "learning_rate"], sort=False)["loss"].mean()
    sweeps: dict[str, dict[str, dict[float, float]]] = {}
    for (variant, size, rate), loss in means.items():
        sweeps.setdefault(variant, {}).setdefault(size, {})[float(rate)] = float(loss)
    sweeps = {v: {s: r for s, r in by.items() if len(r) >= 3} for v, by in sweeps.items()}
    sweeps = {v: by for v, by in sweeps.items() if by}
    if not sweeps:
        raise Refusal(
            "no-sweep", "No variant was run at one size with three learning rates or more."
        )
    sizes = list(dict.fromkeys(s for by in sweeps.values() for s in by))
    colours = dict(zip(sizes, shades(len(sizes)), strict=True))
    rates = [rate for by in sweeps.values() for losses in by.values() for rate in losses]
    losses = [loss for by in sweeps.values() for s in by.values() for loss in s.values()]
    finite = [loss for loss in losses if np.isfinite(loss)]
    if not finite:
        raise Refusal("no-sweep", "All runs of the sweeps diverged.")
    rows, columns = page.grid(len(sweeps), least=2.4)
    with page.styled():
        figure = page.figure((1.6 if page.narrow else 2.7) * rows)
        axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
        titles = shown(sweeps, 0.8 * page.width / columns, page.normal)
        names = shown(sizes, 0.3 * page.width, page.small)
        handles = {}
        for axis, (variant, by_size) in zip(axes, sweeps.items(), strict=False):
            said = []
            for size, of_size in by_size.items():
                handle, best = _curve(axis, of_size, colours[size], sizes.index(size))
                handles[names[size]] = handle
                said.append(f"{names[size]}: {_best_text(best)}")
            axis.set_title("\n".join([titles[variant], *said]), fontsize=page.small)
            axis.set(xscale="log", yscale="log")
        span = 0.75 * page.width / columns
        powers(axes[0].xaxis, min(rates), max(rates), span)
        axes[0].set_ylim(*log_limits(min(finite), max(finite), share=0.08))
        decimals(axes[0].yaxis)
        hide(axes, len(sweeps), columns)
        figure.supxlabel("peak learning rate (per step)", fontsize=page.normal)
        note = "stars: minima of the dashed parabolas; brackets: rises by less than 0.01 nats"
        note += "; x: diverged" if len(finite) < len(losses) else ""
        handles = dict(sorted(handles.items(), key=_order(names, sizes)))
        heading(figure, page, note, handles, "validation loss (nats)")
    return figure


def sweep_rows(df: pd.DataFrame) -> pd.DataFrame:
    """The table with variants named as before a sweep: prenorm-lr0.016 at 0.016 is prenorm."""
    if "learning_rate" not in df:
        return df
    rates = pd.to_numeric(df["learning_rate"], errors="coerce")
    names = [_swept(v, r) for v, r in zip(df["variant"].astype(str), rates, strict=True)]
    return df.assign(variant=names, learning_rate=rates)[rates.notna()]


def _swept(variant: str, rate: float) -> str:
    label = _LABEL.fullmatch(variant)
    return label[1] if label and label[2] == f"{rate:g}" else variant


def _curve(axis, losses: dict[float, float], colour, rank: int):
    """Draws one size's; marks of what diverged stand at the top, a row a size."""
    x = np.array(sorted(losses))
    y = np.array([losses[rate] for rate in x])
    dots = {"color": colour, "marker": MARKERS[rank % len(MARKERS)], "mfc": "none"}
    (handle,) = axis.plot(x, np.where(np.isfinite(y), y, np.nan), lw=0.8, **dots)
    diverged = x[~np.isfinite(y)]
    high = np.full(len(diverged), 0.97 - 0.08 * rank)
    axis.plot(diverged, high, "x", color=colour, transform=axis.get_xaxis_transform())
    try:
        best = best_rate(losses)
    except Refusal as reason:
        return handle, reason
    finite = x[np.isfinite(y)]
    i = int(np.argmin([losses[rate] for rate in finite]))
    grid = np.geomspace(finite[i - 1], finite[i + 1], 60)
    parabola = best.loss + best.curvature * np.log(grid / best.learning_rate) ** 2
    axis.plot(grid, parabola, color=colour, ls="--")
    star = {"color": colour, "marker": "*", "linestyle": "", "zorder": 4, "mec": "black"}
    axis.plot([best.learning_rate], [best.loss], ms=2.2 * handle.get_markersize(), mew=0.5, **star)
    return handle, best


def _best_text(best: BestRate | Refusal) -> str:
    if isinstance(best, Refusal):
        return "best at an end" if best.code == "non-interior-minimum" else best.code
    low, high = best.learning_rate / best.tolerance, best.learning_rate * best.tolerance
    return f"{best.learning_rate:.2g} [{low:.2g}, {high:.2g}]"


def _order(names: dict[str, str], sizes: list[str]):
    position = {names[size]: i for i, size in enumerate(sizes)}
    return lambda item: position[item[0]]
