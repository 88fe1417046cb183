"""One look for all figures: colours, markers, sizes, and ticks that a person can read."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

# Okabe and Ito's palette, safe for colour blindness; its yellow is left out (too faint on white).
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":")

RC = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "legend.fontsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "svg.fonttype": "none",
}


def styled():
    """Context in which to build a figure."""
    return matplotlib.rc_context(RC)


def new_figure(width: float, height: float) -> Figure:
    """A figure of width x height inches, with its own canvas: no pyplot, no global state."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def look(variants: list[str], baseline: str | None = None) -> dict[str, dict]:
    """{variant: {color, marker, linestyle}}, black circles for the baseline."""
    ordered = sorted(variants, key=lambda v: v != baseline)
    return {
        v: {
            "color": COLOURS[i % len(COLOURS)],
            "marker": MARKERS[i % len(MARKERS)],
            "linestyle": LINES[(i // len(COLOURS)) % len(LINES)],
        }
        for i, v in enumerate(ordered)
    }


def plain(name: str) -> str:
    """A name as Matplotlib shows it as it is: between dollars it would set mathematics."""
    return name.replace("$", r"\$")


def legend(owner, handles: dict, **options) -> None:
    """Legend of an axis or figure, {label: artist}, with labels that start with an underscore too.

    Some versions of Matplotlib leave these out, but only when the legend is made.
    """
    made = owner.legend(list(handles.values()), [" "] * len(handles), **options)
    for text, label in zip(made.get_texts(), handles, strict=True):
        text.set_text(label)


def loss_axis(axis) -> None:
    """Plain decimals on a log axis, which over a factor of 1.2 shows no power of ten."""
    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.4g}"))


def compute_axis(axis, low: float, high: float, narrow: bool = False) -> None:
    """Ticks at 1, 2, 5 within a factor of 30, else at powers of ten: more would run together.

    A `narrow` panel has room for powers of ten only, where the range holds one.
    """
    subs = (1, 2, 5) if high / low < 30 else (1,)
    if narrow and np.floor(np.log10(high)) >= np.ceil(np.log10(low)):
        subs = (1,)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(_compute_label))


def _compute_label(value: float, _position) -> str:
    if 1e-3 <= value < 1e4:
        return f"{value:g}"
    mantissa, exponent = f"{value:.0e}".split("e")
    power = f"10^{{{int(exponent)}}}"
    return f"${power}$" if mantissa == "1" else rf"${mantissa}\times{power}$"


def save(figure: Figure, directory: Path, name: str) -> list[Path]:
    """Write DIRECTORY/NAME.png and .svg; returns the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{name}.png", directory / f"{name}.svg"]
    figure.savefig(paths[0], dpi=200)
    # A fixed salt and no date, so that the same results give the same file.
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(paths[1], metadata={"Date": None})
    return paths
