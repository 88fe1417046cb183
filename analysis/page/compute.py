"""Loss and multiplier against compute, under every convention that the data carry."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.errors import Refusal
from analysis.fit import fit
from analysis.multiplier import multiplier
from analysis.multiplier_curve import multiplier_curve
from analysis.page.compact import rounded
from analysis.page.study import Study
from analysis.table import FLOP_PER_PFLOPS_DAY

N_POINTS = 40  # of a law or a band
MARGIN = 1.15  # laws are drawn this much beyond the runs, as in analysis.plots


@dataclass(frozen=True)
class Axis:
    """One way to count what a run took; `values` are of the table's rows."""

    key: str
    label: str
    unit: str
    meaning: str
    values: np.ndarray


def axes(df: pd.DataFrame, study: Study) -> list[Axis]:
    """The table's own convention first, then those of the grid's cells, then the clock."""
    own = df.attrs.get("flops_convention")
    label = own or "convention not stated"
    found = [Axis(own or "own", label, "PFsd", study.conventions.get(own or "", ""),
                  df["pflops_days"].to_numpy(float))]  # fmt: skip
    flops = {cell.id: cell.flops for cell in study.cells}
    cells = [flops.get(str(cell), {}) for cell in df["cell"]] if "cell" in df else []
    for name, meaning in study.conventions.items():
        if name != own and cells and all(name in cell for cell in cells):
            values = np.array([cell[name] for cell in cells]) / FLOP_PER_PFLOPS_DAY
            found.append(Axis(name, name, "PFsd", meaning, values))
    if "train_seconds" in df:
        seconds = pd.to_numeric(df["train_seconds"], errors="coerce").to_numpy(float)
        if (np.isfinite(seconds) & (seconds > 0)).all():
            meaning = "seconds in training steps, on the hardware of the runs"
            found.append(Axis("seconds", "wall-clock", "s", meaning, seconds))
    return found


def compute_figures(df: pd.DataFrame, study: Study, baseline: str | None, index: dict) -> dict:
    """Runs, laws with bands, and m(C) of each variant; `index` numbers the variants."""
    found = axes(df, study)
    return {
        "axes": [
            {"key": a.key, "label": a.label, "unit": a.unit, "meaning": a.meaning} for a in found
        ],
        "runs": [
            {"variant": index[v], "size": str(size), "seed": str(seed), "loss": rounded(loss, 6)}
            for v, size, seed, loss in df[["variant", "size", "seed", "loss"]].itertuples(
                index=False
            )
        ],
        "compute": {a.key: rounded(a.values, 5) for a in found},
        "laws": {a.key: _laws(_under(df, a), index) for a in found},
        "multipliers": {a.key: _multipliers(_under(df, a), baseline, index) for a in found},
    }


def _under(df: pd.DataFrame, axis: Axis) -> pd.DataFrame:
    return df.assign(pflops_days=axis.values)


def _laws(df: pd.DataFrame, index: dict) -> list[dict]:
    low, high = df["pflops_days"].min() / MARGIN, df["pflops_days"].max() * MARGIN
    laws = []
    for variant in df["variant"].unique():
        try:
            law = fit(df[df["variant"] == variant]).laws[variant]
        except Refusal as reason:
            laws.append({"variant": index[variant], "refused": str(reason)})
            continue
        x = np.geomspace(low, high, N_POINTS)
        y, below, above = law.predict(x)
        laws.append(
            {
                "variant": index[variant],
                "A": law.A.value,
                "alpha": law.alpha.value,
                "x": rounded(x, 5),
                "y": rounded(y, 6),
                "low": rounded(below, 6),
                "high": rounded(above, 6),
            }
        )
    return laws


def _multipliers(df: pd.DataFrame, baseline: str | None, index: dict) -> list[dict]:
    if baseline is None or baseline not in set(df["variant"]):
        return []
    rows = []
    for variant in df["variant"].unique():
        if variant == baseline:
            continue
        try:
            curve = multiplier_curve(df, variant, baseline, N_POINTS)
            at = float(curve["pflops_days"].iloc[-1])  # where curves cross, one must be named
            m = multiplier(df, variant, baseline, at)
        except Refusal as reason:
            rows.append({"variant": index[variant], "refused": str(reason)})
            continue
        row = {"variant": index[variant], "inside": curve["inside"].astype(int).tolist()}
        names = {"x": "pflops_days", "y": "multiplier", "low": "low", "high": "high"}
        row |= {key: rounded(curve[column].to_numpy(), 5) for key, column in names.items()}
        row["by_size"] = [
            {"size": s.size, "x": rounded(s.pflops_days, 5), "y": rounded(s.value, 5)}
            for s in m.by_size
        ]
        rows.append(row)
    return rows
