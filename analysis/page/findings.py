"""The report of a table, as far as the table allows one."""

from dataclasses import dataclass, field

import pandas as pd

from analysis.cells import MIN_SIZES, size_means
from analysis.errors import Refusal, listed
from analysis.report import Report, report

_OF_ONE_VARIANT = ("too-few-sizes", "no-compute-range")


@dataclass(frozen=True)
class Findings:
    """A report and the rows it is of; or why there is none."""

    report: Report | None
    df: pd.DataFrame | None  # None where the table itself was refused
    why: str = ""
    missing: list[str] = field(default_factory=list)


def findings(df: pd.DataFrame, baseline: str | None, options: dict) -> Findings:
    """`analysis.report.report`, without variants that no law can be fitted to.

    `scaling fit` refuses a table for one such variant; while a study runs there mostly is one.

    Args:
      df: from `analysis.load`.
      baseline: a variant, or what the study calls it where no run of it is done.
      options: of `analysis.report.report`.
    """
    missing = []
    if baseline is not None and baseline not in set(df["variant"]):
        missing.append(f"No run of the baseline '{baseline}' is done.")
        baseline = None
    try:
        return Findings(report(df, baseline, **options), df, missing=missing)
    except Refusal as reason:
        if reason.code not in _OF_ONE_VARIANT:
            return Findings(None, df, str(reason), [*missing, f"No fits: {reason}"])
        why = str(reason)
    fitted = [v for v in df["variant"].unique() if _fits(df, v)]
    left_out = [v for v in df["variant"].unique() if v not in fitted]
    if not fitted or not left_out:
        return Findings(None, df, why, [*missing, f"No fits: {why}"])
    if baseline in left_out:
        baseline = None
    missing.append(
        f"Left out of the fits, with fewer than {MIN_SIZES} sizes of different compute: "
        f"{listed(left_out)}. `scaling fit` waits for them."
    )
    rows = df[df["variant"].isin(fitted)]
    try:
        return Findings(report(rows, baseline, **options), df, missing=missing)
    except Refusal as reason:
        return Findings(None, df, str(reason), [*missing, f"No fits: {reason}"])


def _fits(df: pd.DataFrame, variant: str) -> bool:
    ln_compute = size_means(df, variant)["ln_compute"]
    return len(ln_compute) >= MIN_SIZES and ln_compute.max() - ln_compute.min() > 1e-6
