"""One look for all figures: page widths, fonts, colours, markers, and how files are written."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# Okabe and Ito's palette, safe for colour blindness; its yellow is left out (too faint on white).
BLACK = "#000000"  # of the baseline
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("s", "^", "D", "v", "P", "X", "o")
LINES = ("-", "--", "-.", ":")
GREY = "#404040"  # of notes and reference lines
SHADE = "#d9d9d9"  # of what is extrapolated
SEQUENTIAL = "cividis"  # even in lightness, and the same to all eyes
DIVERGING = "PuOr_r"  # about 0; safe for colour blindness

RC = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "legend.fontsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "lines.linewidth": 1.3,
    "lines.markersize": 5,
    "lines.markeredgewidth": 1.1,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.borderpad": 0.2,
    "legend.borderaxespad": 0.2,
    "legend.columnspacing": 1.2,
    "legend.handlelength": 1.8,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.06,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # TrueType, which publishers ask for
}
# At the width of a column nothing is scaled down in print, so that type is set at its final size.
NARROW = {
    "font.size": 7,
    "axes.titlesize": 7,
    "axes.labelsize": 7,
    "legend.fontsize": 6.5,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.2,
    "lines.markeredgewidth": 0.8,
    "axes.linewidth": 0.6,
    "axes.titlepad": 4,
    "axes.labelpad": 2.5,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "grid.linewidth": 0.4,
}


@dataclass(frozen=True)
class Page:
    """What a figure is drawn for: its final width, and the study whose colours it keeps.

    Attributes:
      width: inches.
      variants: of the study, in the order of their colours; a figure of a few of them then gives
        each the colour that it has in all others. Empty: those of the figure's own table.
    """

    width: float = 6.8
    variants: tuple[str, ...] = ()

    @property
    def narrow(self) -> bool:
        return self.width < 5

    @property
    def small(self) -> float:
        """Points, of notes."""
        return 6.5 if self.narrow else 9

    @property
    def normal(self) -> float:
        """Points, of titles and labels."""
        return 7 if self.narrow else 10

    def styled(self):
        """Context in which to build a figure."""
        return matplotlib.rc_context(RC | (NARROW if self.narrow else {}))

    def figure(self, height: float) -> Figure:
        """A figure of the page's width, `height` inches high."""
        return new_figure(self.width, height)

    def grid(self, n: int, least: float = 2.1) -> tuple[int, int]:
        """Rows and columns for n panels, each about `least` inches wide or more."""
        least *= 0.75 if self.narrow else 1
        columns = min(n, max(1, int(self.width / least)))
        rows = -(-n // columns)
        return rows, -(-n // rows)

    def look(self, names: Iterable[str], baseline: str | None = None) -> dict[str, dict]:
        """`look` of the study's variants and, after them, of names that it does not have."""
        return look(list(dict.fromkeys([*self.variants, *names])), baseline)


FULL = Page(6.8)
COLUMN = Page(3.3)


def styled():
    """Context in which to build a figure of full width."""
    return FULL.styled()


def new_figure(width: float, height: float) -> Figure:
    """A figure of width x height inches, with its own canvas: no pyplot, no global state."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def look(variants: list[str], baseline: str | None = None) -> dict[str, dict]:
    """{variant: {color, marker, linestyle}}; the baseline alone is black, with circles.

    A colour that comes again has another marker and another line; 42 are told apart.
    """
    looks = {baseline: {"color": BLACK, "marker": "o", "linestyle": "-"}}
    n = len(COLOURS)
    for i, variant in enumerate(v for v in variants if v != baseline):
        looks[variant] = {
            "color": COLOURS[i % n],
            "marker": MARKERS[(i % n + i // n) % len(MARKERS)],
            "linestyle": LINES[(i // n) % len(LINES)],
        }
    return {v: looks[v] for v in variants}


def band(n: int) -> float:
    """Opacity of the bands of n variants in one panel, which would hide each other's lines."""
    return max(0.04, min(0.15, 0.5 / max(n, 1)))


def shades(n: int) -> list[tuple]:
    """[n] colours for what has an order, such as sizes; dark to light, short of the palest."""
    return [tuple(c) for c in matplotlib.colormaps[SEQUENTIAL](np.linspace(0, 0.85, n))]


def save(figure: Figure, directory: Path, name: str, pdf: bool = False) -> list[Path]:
    """Write DIRECTORY/NAME.png, .svg and, if asked for, .pdf; returns the paths.

    The same results give the same files: a fixed salt, and no date.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{name}.{kind}" for kind in ("png", "svg", *(["pdf"] if pdf else []))]
    files = {key: RC[key] for key in ("svg.fonttype", "pdf.fonttype")} | {"svg.hashsalt": name}
    with warnings.catch_warnings(), matplotlib.rc_context(files):
        # A letter that the font lacks is a box in the PNG; the SVG holds the letter itself.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(paths[0], dpi=300 if figure.get_figwidth() < 5 else 200)
        figure.savefig(paths[1], metadata={"Date": None})
        if pdf:
            figure.savefig(paths[2], metadata={"CreationDate": None})
    return paths
