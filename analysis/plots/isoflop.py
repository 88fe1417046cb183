"""IsoFLOP profiles: loss against size at each budget, and the best size against the budget."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.errors import Refusal, listed
from analysis.isoflop import MIN_POINTS, Profile, optimum_law, profile
from analysis.plots.axes import decimals, log_limits, power, powers
from analysis.plots.text import heading, shown
from analysis.render import number
from analysis.style import FULL, GREY, MARKERS, Page, shades

COLUMNS = ("n_params_non_embedding", "train_flops", "loss")
SAME_BUDGET = 1.1  # largest ratio of FLOPs within one budget


def isoflop_profiles(df: pd.DataFrame, page: Page = FULL) -> Figure:
    """A row a variant: parabolas of loss in ln N with their minima, and N*(C) with its law.

    (Approach 2 of Hoffmann et al., arXiv 2203.15556, Fig. 3.) The title of N*(C) has its exponent
    with a 95% interval; budgets whose parabola has no minimum inside are drawn without one.

    Args:
      df: n_params_non_embedding, train_flops (FLOP), loss (nats); optionally variant. Runs within
        10% of FLOPs are of one budget.

    Raises:
      Refusal: "missing-columns"; "no-isoflop": no budget has four sizes.
    """
    missing = [c for c in COLUMNS if c not in df]
    if missing:
        raise Refusal(
            "missing-columns", f"The table lacks {listed(missing)}, so no IsoFLOP profile."
        )
    df = df.assign(variant=df["variant"].astype(str) if "variant" in df else "all runs")
    df = df[np.isfinite(df[list(COLUMNS)].astype(float)).all(axis=1)]
    found = {v: _budgets(runs) for v, runs in df.groupby("variant", sort=False)}
    found = {v: budgets for v, budgets in found.items() if budgets}
    if not found:
        raise Refusal(
            "no-isoflop",
            f"No budget was run at {MIN_POINTS} sizes or more (same train_flops, different "
            "n_params_non_embedding).",
        )
    budgets = sorted({flops for of_variant in found.values() for flops, _, _ in of_variant})
    centres = _centres(budgets)
    colours = dict(zip(centres, shades(len(centres)), strict=True))
    stacked = page.narrow
    with page.styled():
        n_rows = len(found) * (2 if stacked else 1)
        height = (1.65 if page.narrow else 2.6) * n_rows
        figure = page.figure(height)
        axes = figure.subplots(n_rows, 1 if stacked else 2, squeeze=False).reshape(-1, 2)
        names = shown(found, 0.4 * page.width, page.normal)
        handles = {}
        for (left, right), (variant, of_variant) in zip(axes, found.items(), strict=True):
            for flops, runs, fitted in of_variant:
                centre = min(centres, key=lambda c, f=flops: abs(np.log(c / f)))
                marker = MARKERS[centres.index(centre) % len(MARKERS)]
                label = f"{power(float(f'{centre:.2g}'))} FLOP"
                handles[label] = _profile(left, right, runs, fitted, colours[centre], marker)
            left.set(xscale="log", yscale="log", title=names[variant])
            left.set(xlabel="parameters N (non-embedding)", ylabel="loss (nats)")
            losses, N = (np.concatenate([runs[c] for _, runs, _ in of_variant])
                         for c in ("loss", "n_params_non_embedding"))  # fmt: skip
            left.set_ylim(*log_limits(losses.min(), losses.max()))
            decimals(left.yaxis, most=5)
            span = 0.8 * page.width / (1 if stacked else 2)
            powers(left.xaxis, N.min(), N.max(), span)
            optima = [(flops, f.n_opt) for flops, _, f in of_variant if isinstance(f, Profile)]
            _law(right, optima, span, height / n_rows - 0.6)
        ordered = {label: handles[label] for label in _in_order(handles, centres)}
        heading(figure, page, "parabolas in ln N; stars: their minima (no interval)", ordered)
    return figure


def _budgets(runs: pd.DataFrame) -> list[tuple[float, pd.DataFrame, Profile | Refusal]]:
    """(FLOP, its runs, parabola or why there is none) of each budget with enough sizes."""
    runs = runs.sort_values("train_flops")
    found = []
    while len(runs):
        within = runs["train_flops"] <= SAME_BUDGET * runs["train_flops"].iloc[0]
        budget, runs = runs[within], runs[~within]
        flops = float(np.exp(np.log(budget["train_flops"]).mean()))
        try:
            fitted = profile(flops, budget["n_params_non_embedding"], budget["loss"])
        except Refusal as reason:
            fitted = reason
            if reason.code == "too-few-points":
                continue
        found.append((flops, budget.sort_values("n_params_non_embedding"), fitted))
    return found


def _centres(budgets: list[float]) -> list[float]:
    """Budgets that all variants share have one colour, though their FLOPs differ a little."""
    centres: list[float] = []
    for flops in budgets:
        if not centres or flops > SAME_BUDGET * centres[-1]:
            centres.append(flops)
    return centres


def _in_order(handles: dict, centres: list[float]) -> list[str]:
    order = [f"{power(float(f'{c:.2g}'))} FLOP" for c in centres]
    return [label for label in dict.fromkeys(order) if label in handles]


def _profile(left, right, runs: pd.DataFrame, fitted, colour, marker: str):
    N = runs["n_params_non_embedding"].to_numpy(float)
    dots = {"color": colour, "marker": marker, "mfc": "none"}
    (handle,) = left.plot(N, runs["loss"], linestyle="", **dots)
    if isinstance(fitted, Profile):
        x = np.geomspace(N.min(), N.max(), 80)
        y = fitted.loss_opt + fitted.curvature * np.log(x / fitted.n_opt) ** 2
        left.plot(x, y, color=colour)
        star = {"color": colour, "marker": "*", "linestyle": "", "zorder": 4}
        star |= {"ms": 2.2 * handle.get_markersize(), "mec": "black", "mew": 0.5}
        left.plot([fitted.n_opt], [fitted.loss_opt], **star)
        right.plot([fitted.flops], [fitted.n_opt], **star)
    return handle


def _law(axis, optima: list[tuple[float, float]], wide: float, high: float) -> None:
    axis.set(xscale="log", yscale="log", xlabel="budget C (FLOP)", ylabel="best N* (parameters)")
    if not optima:
        axis.text(0.5, 0.5, "no minimum inside", ha="center", va="center", transform=axis.transAxes)
        axis.set(xticks=[], yticks=[])
        return
    C, N = np.array(optima).T
    powers(axis.xaxis, C.min(), C.max(), wide)
    powers(axis.yaxis, N.min(), N.max(), 1.6 * high)
    axis.margins(0.12)
    if C.min() == C.max():
        axis.set_xlim(C[0] / 2, 2 * C[0])
        axis.set_ylim(N[0] / 2, 2 * N[0])
    try:
        law = optimum_law(C, N)
    except Refusal as reason:
        axis.set_title(f"no law ({reason.code})")
        return
    x = np.geomspace(C.min(), C.max(), 2)
    axis.plot(x, law.coefficient * x**law.exponent.value, color=GREY, lw=1, zorder=1)
    axis.set_title(f"N* ~ $C^a$, a {number(law.exponent)}")
