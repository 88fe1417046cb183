"""Depth-mixing matrices of a study, at the page's width."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.errors import Refusal, listed
from analysis.mixing import mixing_heatmaps
from analysis.plots.text import shown
from analysis.style import FULL, Page

COLUMNS = ("cell", "sublayer", "source", "weight")
_WITH_UNIT = {
    "sublayer": "sublayer (index)",
    "source": "source (index)",
    "share of the row's largest weight": "weight (share of the row's largest)",
}


def mixing_matrices(df: pd.DataFrame, page: Page = FULL) -> Figure:
    """`analysis.mixing.mixing_heatmaps`, with names that fit their panels.

    Args:
      df: cell, sublayer, source, weight, as `scaling mixing-matrix` writes them.

    Raises:
      Refusal: "bad-mixing": a column is missing, or there is no row.
    """
    missing = [c for c in COLUMNS if c not in df]
    if missing or df.empty:
        what = f"lacks {listed(missing)}" if missing else "has no rows"
        raise Refusal("bad-mixing", f"The table of mixing matrices {what}.")
    columns = 2 if page.narrow else 4
    names = shown(df["cell"].astype(str).unique(), (page.width - 1.1) / columns - 0.1, 8)
    with page.styled():
        figure = mixing_heatmaps(df.assign(cell=df["cell"].astype(str).map(names)), columns)
        for axis in figure.axes:
            for which in (axis.xaxis, axis.yaxis):
                which.set_label_text(_WITH_UNIT.get(which.get_label_text(), ""))
        scale = min(page.width / figure.get_figwidth(), 1.3)
        figure.set_size_inches(page.width, scale * figure.get_figheight())
    return figure
