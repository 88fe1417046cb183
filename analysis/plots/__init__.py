"""Figures from tables. Each function takes a DataFrame and returns a matplotlib Figure.

Its last argument is the page: `FULL` (6.8 in, the default) or `COLUMN` (3.3 in), drawn at its final
size. `save_all` draws what a table and a run directory support.
"""

from analysis.plots.alpha import alpha_heatmaps
from analysis.plots.blocks import block_sweep, with_n_blocks
from analysis.plots.cost import cost_by_variant
from analysis.plots.curves import loss_by_step, loss_curves
from analysis.plots.depth import gradient_by_depth, input_by_depth, output_by_depth
from analysis.plots.gap import gap_by_size
from analysis.plots.isoflop import isoflop_profiles
from analysis.plots.learning_rate import learning_rate_sweep, sweep_rows
from analysis.plots.loss import loss_vs_compute
from analysis.plots.mixing import mixing_matrices
from analysis.plots.multipliers import multiplier_curves, multipliers_by_size
from analysis.plots.study import save_all
from analysis.style import COLUMN, FULL, Page

__all__ = [
    "COLUMN",
    "FULL",
    "Page",
    "alpha_heatmaps",
    "block_sweep",
    "cost_by_variant",
    "gap_by_size",
    "gradient_by_depth",
    "input_by_depth",
    "isoflop_profiles",
    "learning_rate_sweep",
    "loss_by_step",
    "loss_curves",
    "loss_vs_compute",
    "mixing_matrices",
    "multiplier_curves",
    "multipliers_by_size",
    "output_by_depth",
    "save_all",
    "sweep_rows",
    "with_n_blocks",
]
