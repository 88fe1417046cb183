"""For whom the learning rates were tuned, which can weigh as much as what is compared."""

from dataclasses import asdict, dataclass

import pandas as pd


@dataclass(frozen=True)
class Practice:
    """Whose sweep chose the runs' learning rates, from the column `rate_swept_for`.

    name: "every variant", each with its own sweep; "baseline alone", as in Attention Residuals
    (arXiv 2603.15031), which favours the baseline; "none" was swept; "mixed"; "not stated".
    """

    name: str
    swept_for: dict[str, dict[str, int]]  # variant -> whose sweep ("" for none) -> number of runs

    def to_dict(self) -> dict:
        """Plain numbers, strings and dicts."""
        return asdict(self)


def practice(df: pd.DataFrame, baseline: str | None) -> Practice:
    """The tuning practice of a table.

    Args:
      df: from `analysis.load`.
      baseline: the variant that others are compared with, if there is one.
    """
    if "rate_swept_for" not in df:
        return Practice("not stated", {})
    owners = df["rate_swept_for"].astype(object)
    owners = owners.where(owners.notna(), "").astype(str)  # a column of blanks was read as numbers
    counts = {
        str(v): {str(k): int(n) for k, n in owners[df["variant"] == v].value_counts().items()}
        for v in df["variant"].unique()
    }
    if (owners == "").all():
        name = "none"
    elif (owners == df["variant"]).all():
        name = "every variant"
    elif (owners == baseline).all():
        name = "baseline alone"
    else:
        name = "mixed"
    return Practice(name, counts)
