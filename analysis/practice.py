"""For whom the learning rates were tuned, which can weigh as much as what is compared."""

from dataclasses import dataclass

import pandas as pd

from analysis.record import Record


@dataclass(frozen=True)
class Practice(Record):
    """Whose sweep chose the runs' learning rates, from the column `rate_swept_for`.

    name: "every variant", each with its own sweep; "one variant", for all, as the baseline in
    Attention Residuals (arXiv 2603.15031), which favours it; "none"; "mixed"; "not stated".
    """

    name: str
    owner: str | None  # that one variant
    swept_for: dict[str, dict[str, int]]  # variant -> whose sweep ("" for none) -> number of runs


def practice(df: pd.DataFrame) -> Practice:
    """The tuning practice of a table.

    Args:
      df: from `analysis.load`.
    """
    if "rate_swept_for" not in df:
        return Practice("not stated", None, {})
    owners = df["rate_swept_for"].astype(object)
    owners = owners.where(owners.notna(), "").astype(str)  # a column of blanks was read as numbers
    owners = owners.where(owners.isin(df["variant"].unique()), "")  # a name of no variant is none
    counts = {
        str(v): {str(k): int(n) for k, n in owners[df["variant"] == v].value_counts().items()}
        for v in df["variant"].unique()
    }
    one = owners.iloc[0] if owners.nunique() == 1 else None
    if one == "":
        return Practice("none", None, counts)
    if (owners == df["variant"]).all():
        return Practice("every variant", None, counts)
    return Practice("mixed" if one is None else "one variant", one, counts)
