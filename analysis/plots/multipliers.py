"""Multipliers: at each size, pooled, and as a function of compute."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.errors import Refusal
from analysis.multiplier import multiplier
from analysis.multiplier_curve import multiplier_curve
from analysis.plots.axes import COMPUTE, hide, powers, values
from analysis.plots.text import heading, short, shown
from analysis.render import number
from analysis.style import FULL, GREY, SHADE, Page
from analysis.table import baseline as baseline_of

WIDEST = 3.0  # how far a band may widen the panels, as a factor; what is wider leaves them


@dataclass(frozen=True)
class _Panel:
    """One variant's: what to draw, what to say, and which values the axis must hold."""

    draw: Callable  # (axis, style) -> None
    said: str
    values: list[float]
    ends: list[float]  # of intervals


def multipliers_by_size(df: pd.DataFrame, baseline: str | None = None, page: Page = FULL) -> Figure:
    """One panel a variant: paired multiplier at each size, and the pooled value with interval.

    A variant that cannot be compared has a panel that says why, by the refusal's code.

    Args:
      df: from `analysis.load`.

    Raises:
      Refusal: "one-variant"; "no-baseline"; that of the first variant where none can be compared.
    """

    def panel(variant: str, base: str) -> _Panel:
        m = multiplier(df, variant, baseline=base)
        x, y = [s.pflops_days for s in m.by_size], [s.value for s in m.by_size]

        def draw(axis, style: dict) -> None:
            axis.axhspan(m.shared.low, m.shared.high, color=style["color"], alpha=0.15, lw=0)
            axis.axhline(m.shared.value, color=style["color"])
            axis.plot(x, y, color=style["color"], marker=style["marker"], ls="")

        said = number(m.shared, unit="x")
        return _Panel(draw, said, [m.shared.value, *y], [m.shared.low, m.shared.high])

    note = "points: sizes; line, band and brackets: shared exponent, paired 95%"
    return _panels(df, baseline, page, panel, note, "compute multiplier")


def multiplier_curves(df: pd.DataFrame, baseline: str | None = None, page: Page = FULL) -> Figure:
    """One panel a variant: m(C), each curve with its own exponent, with its pointwise 95% band.

    Shaded is where the variant's loss lies outside the losses of the baseline's runs, so that its
    law is extrapolated. Titles give m at the largest compute that is not.

    Args:
      df: from `analysis.load`.

    Raises:
      Refusal: as `multipliers_by_size`, except that curves may cross.
    """

    def panel(variant: str, base: str) -> _Panel:
        curve = multiplier_curve(df, variant, baseline=base)
        x, inside = curve["pflops_days"].to_numpy(), curve["inside"].to_numpy()

        def draw(axis, style: dict) -> None:
            for low, high in outside(x, inside):
                axis.axvspan(low, high, facecolor=SHADE, edgecolor="white", hatch="////", lw=0)
            band = {"color": style["color"], "alpha": 0.2, "lw": 0, "zorder": 2}
            axis.fill_between(x, curve["low"], curve["high"], **band)
            axis.plot(x, curve["multiplier"], color=style["color"])

        said = "extrapolated throughout"
        if inside.any():
            last = curve[inside].iloc[-1]
            said = f"{last['multiplier']:.2f}x [{last['low']:.2f}, {last['high']:.2f}]"
            said += ("\n" if page.narrow else " ") + f"at {last['pflops_days']:.2g} PFsd"
        return _Panel(draw, said, list(curve["multiplier"]), [*curve["low"], *curve["high"]])

    note = "lines: own exponents; bands: pointwise 95%; shaded: the baseline's law is extrapolated"
    return _panels(df, baseline, page, panel, note, "compute multiplier m(C)")


def outside(x: np.ndarray, inside: np.ndarray) -> list[tuple[float, float]]:
    """The stretches of x, [n] and increasing, that are not `inside`, up to halfway to what is."""
    edges = np.sqrt(x[1:] * x[:-1])
    left, right = np.r_[x[0], edges], np.r_[edges, x[-1]]
    changes = np.flatnonzero(np.diff(np.r_[True, inside, True].astype(int)))
    starts, ends = changes[::2], changes[1::2]
    return [(float(left[a]), float(right[b - 1])) for a, b in zip(starts, ends, strict=True)]


def _panels(
    df: pd.DataFrame,
    baseline: str | None,
    page: Page,
    make: Callable[[str, str], _Panel],
    note: str,
    what: str,
) -> Figure:
    base = baseline_of(df, baseline)
    variants = [v for v in df["variant"].unique() if v != base]
    if not variants:
        raise Refusal("one-variant", f"The table has only '{base}'; there is nothing to compare.")
    panels, refusals = {}, {}
    for variant in variants:
        try:
            panels[variant] = make(variant, base)
        except Refusal as reason:
            refusals[variant] = reason
    if not panels:
        raise next(iter(refusals.values()))
    looks = page.look(df["variant"].unique(), base)
    rows, columns = page.grid(len(variants))
    x = df.loc[df["variant"].isin(panels), "pflops_days"]
    low, high = _range(panels.values())
    with page.styled():
        figure = page.figure((1.3 if page.narrow else 2.3) * rows + 0.3)
        axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
        titles = shown(variants, 0.8 * page.width / columns, page.normal)
        for axis, variant in zip(axes, variants, strict=False):
            axis.axhline(1, color=GREY, lw=0.9, ls=":")
            if variant in panels:
                panels[variant].draw(axis, looks[variant])
                said = panels[variant].said
            else:
                said = f"none: {refusals[variant].code}"
            axis.set_title(f"{titles[variant]}\n{said}")
            axis.set(xscale="log", yscale="log")
            axis.margins(x=0.08)
        powers(axes[0].xaxis, x.min(), x.max(), 0.75 * page.width / columns)
        values(axes[0].yaxis, low, high, figure.get_figheight() / rows - 0.7)
        axes[0].set_ylim(low, high)
        hide(axes, len(variants), columns)
        figure.supxlabel(f"{COMPUTE})", fontsize=page.normal)
        heading(
            figure, page, f"{what} over {short(base, page)}; {note}", ylabel="multiplier (ratio)"
        )
    return figure


def _range(panels) -> tuple[float, float]:
    """Of the axis that all panels share: all values, and intervals as far as they are not wide."""
    inner = [1.0, *(v for p in panels for v in p.values)]
    ends = [e for p in panels for e in p.ends]
    low = max(min(inner + ends), min(inner) / WIDEST)
    high = min(max(inner + ends), max(inner) * WIDEST)
    return low / 1.02, high * 1.02
