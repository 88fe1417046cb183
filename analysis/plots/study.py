"""All figures of a study: what its files support is drawn, of the rest it is said why not."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis.curves import load_curves
from analysis.dynamics import load_ablation, load_dynamics
from analysis.errors import Refusal
from analysis.plots.alpha import alpha_heatmaps
from analysis.plots.blocks import block_sweep, with_n_blocks
from analysis.plots.cost import cost_by_variant
from analysis.plots.curves import chosen_size, loss_by_step, loss_curves
from analysis.plots.depth import gradient_by_depth, input_by_depth, output_by_depth
from analysis.plots.gap import gap_by_size
from analysis.plots.isoflop import isoflop_profiles
from analysis.plots.learning_rate import learning_rate_sweep, sweep_rows
from analysis.plots.loss import loss_vs_compute
from analysis.plots.mixing import mixing_matrices
from analysis.plots.multipliers import multiplier_curves, multipliers_by_size
from analysis.style import FULL, Page, save
from analysis.table import baseline as baseline_of

DRAWN = ("input_rms", "output_rms", "grad_norm", "alpha")  # of the dynamics
Figures = dict[str, Callable[[], Figure]]


def save_all(
    df: pd.DataFrame | None,
    directory: Path,
    baseline: str | None = None,
    run: Path | None = None,
    *,
    full: str = "attnres_full",
    block: str = "attnres_block",
    size: str | None = None,
    page: Page = FULL,
    pdf: bool = False,
) -> tuple[list[Path], dict[str, str]]:
    """Write every figure that the table and the run directory support, as PNG and SVG.

    Args:
      df: from `analysis.load`; None where no run is finished, and then the curves of unfinished
        ones are drawn.
      directory: where to.
      baseline: default "prenorm" or "baseline".
      run: the run directory, for what is not in the table.
      full, block: what the study calls Full and Block AttnRes.
      size: of the figures that show one size; default the largest that compares variants.
      page: the width.
      pdf: PDF too.

    Returns:
      The paths, and {figure or damaged file: what is missing and why}, a sentence each.

    Raises:
      Refusal: "missing-variant", "missing-size": there is no such baseline or size.
    """
    figures: Figures = {}
    if df is not None:
        if baseline is not None:
            baseline_of(df, baseline)
        if size is not None:
            chosen_size(df, size, baseline)
        page = replace(page, variants=tuple(df["variant"].unique()))
        figures |= _of_table(df, baseline, run, page, full, block)
    damaged: dict[str, str] = {}
    if run is not None:
        figures |= _of_run(run, df is None, baseline, size, page, damaged)
    written, skipped = [], {}
    for name, draw in figures.items():
        try:
            written += save(draw(), directory, name, pdf)
        except Refusal as reason:
            skipped[name] = str(reason)
    return written, skipped | damaged


def _of_table(
    df: pd.DataFrame, baseline: str | None, run: Path | None, page: Page, full: str, block: str
) -> Figures:
    def blocks() -> pd.DataFrame:
        return with_n_blocks(df, run) if run and "n_blocks" not in df else df

    return {
        "loss_vs_compute": lambda: loss_vs_compute(df, baseline, page),
        "multipliers_by_size": lambda: multipliers_by_size(df, baseline, page),
        "multiplier_curves": lambda: multiplier_curves(df, baseline, page),
        "gap_by_size": lambda: gap_by_size(df, baseline, page, full=full, block=block),
        "cost_by_variant": lambda: cost_by_variant(df, baseline, page),
        "block_sweep": lambda: block_sweep(blocks(), baseline, full, page),
        "isoflop_profiles": lambda: isoflop_profiles(df, page),
        "learning_rate_sweep": lambda: learning_rate_sweep(sweep_rows(df), page),
    }


def _of_run(
    run: Path, unfinished: bool, baseline: str | None, size: str | None, page: Page, damaged: dict
) -> Figures:
    """Each file is read once; what is damaged in it goes into `damaged`."""

    @cache
    def curves() -> pd.DataFrame:
        return noted(load_curves(run, unfinished=unfinished, strict=False), "metrics.jsonl")

    @cache
    def dynamics() -> pd.DataFrame:
        found = load_dynamics(
            run, metrics=DRAWN, last_step=True, unfinished=unfinished, strict=False
        )
        return noted(found, "dynamics.parquet")

    def alpha() -> Figure:
        found, beside = dynamics(), None
        if (found["metric"] == "alpha").any():
            try:
                beside = noted(
                    load_ablation(run, unfinished=unfinished, strict=False), "ablation.parquet"
                )
            except Refusal as reason:  # the maps of weights do without
                damaged["map of importance"] = str(reason)
        return alpha_heatmaps(found, beside, size, page=page)

    def noted(df: pd.DataFrame, file: str) -> pd.DataFrame:
        damaged.update({f"all of {file} ({i})": s for i, s in enumerate(df.attrs["damaged"], 1)})
        return df

    return {
        "loss_curves": lambda: loss_curves(curves(), baseline, page),
        "loss_by_step": lambda: loss_by_step(curves(), size, baseline, page),
        "input_by_depth": lambda: input_by_depth(dynamics(), size, baseline, page),
        "output_by_depth": lambda: output_by_depth(dynamics(), size, baseline, page),
        "gradient_by_depth": lambda: gradient_by_depth(dynamics(), size, baseline, page),
        "alpha_heatmaps": alpha,
        "mixing": lambda: mixing_matrices(_mixing(run), page),
    }


def _mixing(run: Path) -> pd.DataFrame:
    path = run / "plots" / "mixing.csv"
    if not path.is_file():
        raise Refusal(
            "no-mixing", f"There is no '{path}'; `scaling mixing-matrix {run}` computes it."
        )
    try:
        return pd.read_csv(path)
    except (ValueError, OSError) as e:  # pandas' own errors are ValueErrors
        raise Refusal("bad-mixing", f"'{path}' cannot be read as CSV ({e}).") from e
