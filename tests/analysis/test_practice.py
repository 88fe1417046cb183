"""Whose sweep chose the learning rates, as a fit's provenance says."""

import pandas as pd
import pytest

from analysis.practice import practice
from analysis.table import load


def table(owners: dict[str, list[str]] | None) -> pd.DataFrame:
    rows = []
    for variant in ("prenorm", "full"):
        for i in range(3):
            row = {
                "variant": variant,
                "size": f"s{i}",
                "loss": 3 - i,
                "train_flops": 10 ** (15 + i),
            }
            if owners is not None:
                row["rate_swept_for"] = owners[variant][i]
            rows.append(row)
    return load(pd.DataFrame(rows))


@pytest.mark.parametrize(
    "owners, name",
    [
        (None, "not stated"),
        ({"prenorm": [""] * 3, "full": [""] * 3}, "none"),
        ({"prenorm": ["prenorm"] * 3, "full": ["full"] * 3}, "every variant"),
        ({"prenorm": ["prenorm"] * 3, "full": ["prenorm"] * 3}, "one variant"),
        ({"prenorm": ["prenorm"] * 3, "full": ["prenorm", "full", "full"]}, "mixed"),
        ({"prenorm": ["prenorm", "", ""], "full": ["prenorm", "", ""]}, "mixed"),
        ({"prenorm": ["xyzzy"] * 3, "full": ["xyzzy"] * 3}, "none"),  # the name of no variant
    ],
)
def test_practice(owners, name):
    found = practice(table(owners))
    assert found.name == name
    assert found.owner == ("prenorm" if name == "one variant" else None)
    if owners is not None:
        assert sum(found.swept_for["full"].values()) == 3
