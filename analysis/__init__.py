"""From a study's results to scaling laws, compute multipliers and the Full-Block gap.

    df = load("runs/demo")
    fit(df).laws["attnres_block"].alpha
    multiplier(df, "attnres_block").shared      # a value with its interval
    gap(df).pooled

Needs numpy, scipy, pandas, pyarrow and matplotlib only; it reads files and never imports JAX.
"""

from analysis.bootstrap import bootstrap
from analysis.curves import load_curves
from analysis.differences import differences
from analysis.dynamics import load_ablation, load_dynamics
from analysis.errors import Refusal
from analysis.fit import fit
from analysis.floor import fit_floors
from analysis.gap import gap
from analysis.holdout import holdout
from analysis.multiplier import multiplier
from analysis.multiplier_curve import multiplier_curve
from analysis.report import report
from analysis.robustness import robustness
from analysis.surface import fit_surface
from analysis.table import load

_PLOTS = (
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
)

__all__ = ["Refusal", "bootstrap", "differences", "fit", "fit_floors", "fit_surface", "gap"]
__all__ += ["holdout", "load", "load_ablation", "load_curves", "load_dynamics", "multiplier"]
__all__ += ["multiplier_curve", "report", "robustness", *_PLOTS]


def __getattr__(name: str):
    if name in _PLOTS:  # matplotlib takes longer to import than everything else here
        from analysis import plots

        return getattr(plots, name)
    raise AttributeError(f"module 'analysis' has no attribute '{name}'")
