"""Heat maps of depth-mixing matrices."""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.style import new_figure, styled

COLUMNS = 6


def mixing_heatmaps(df: pd.DataFrame, columns: int = COLUMNS) -> Figure:
    """One panel a cell: which sources (across) the input of each sublayer (down) holds.

    Args:
      df: rows of cell, sublayer, source and weight; the last sublayer is the readout. Norms undo
        the scale of an input, so that each row is drawn in shares of its largest weight.
    """
    cells = list(df["cell"].unique())
    columns = min(columns, len(cells))
    rows = math.ceil(len(cells) / columns)
    with styled():
        figure = new_figure(max(3.4, 1.55 * columns + 0.9), 1.75 * rows + 0.75)
        axes = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
        for axis, cell in zip(axes, cells, strict=False):
            image = _panel(axis, df[df["cell"] == cell])
            axis.set_title(cell, fontsize=8)
        for axis in axes[len(cells) :]:
            axis.set_axis_off()
        for axis in axes[: len(cells)][::columns]:
            axis.set_ylabel("sublayer", fontsize=8)
        for axis in axes[max(0, len(cells) - columns) : len(cells)]:
            axis.set_xlabel("source", fontsize=8)
        bar = figure.colorbar(image, ax=list(axes), shrink=0.6, aspect=30, pad=0.01)
        bar.set_label("share of the row's largest weight", fontsize=8)
        bar.ax.tick_params(labelsize=7)
    return figure


def _panel(axis, df: pd.DataFrame):
    matrix = df.pivot(index="sublayer", columns="source", values="weight").to_numpy()
    largest = np.nanmax(np.abs(matrix), axis=1, keepdims=True)
    shares = matrix / np.where(largest > 0, largest, 1)
    image = axis.imshow(shares, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
    last = len(matrix) - 1
    axis.set_xticks([0, last], ["emb.", str(last)], fontsize=7)
    axis.set_yticks([0, last], ["0", "out"], fontsize=7)
    axis.grid(False)
    axis.spines[["left", "bottom"]].set_visible(False)
    axis.tick_params(length=0)
    return image
