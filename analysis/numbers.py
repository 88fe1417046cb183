"""Cells that must be numbers, and cells that may be."""

import re

import numpy as np
import pandas as pd

from analysis.errors import Refusal

_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")


def numeric_column(
    values: pd.Series, name: str, lines: list[str], decimal_comma: bool
) -> pd.Series:
    """A column of finite, positive float64; a refusal naming the first line that is not."""
    numbers = np.empty(len(values))
    for i, (cell, line) in enumerate(zip(values, lines, strict=True)):
        if str(cell).strip() == "" or cell is None:
            raise Refusal("missing-value", f"{line}: `{name}` is empty; a number is needed.")
        try:
            if "_" in str(cell):  # which Python takes for a digit separator
                raise ValueError
            numbers[i] = float(_with_point(cell, decimal_comma))
        except (TypeError, ValueError):
            raise Refusal(
                "not-a-number",
                f"{line}: `{name}` is '{cell}', which is not a number. Write it plainly, "
                "such as 1.931 or 4.5e19, without units or percent signs.",
            ) from None
        if not np.isfinite(numbers[i]):
            raise Refusal(
                "not-finite",
                f"{line}: `{name}` is {cell}. A diverged run cannot be fitted: give it a "
                "`status` other than 'done' or leave the row out.",
            )
        if numbers[i] <= 0:
            raise Refusal(
                "not-positive",
                f"{line}: `{name}` is {cell}; a power law needs values above 0.",
            )
    return pd.Series(numbers, index=values.index)


def plain_numbers(values: pd.Series, decimal_comma: bool) -> pd.Series:
    """The column as numbers if every cell is one, unchanged otherwise."""
    if values.dtype != object and not pd.api.types.is_string_dtype(values):
        return values
    try:
        return pd.to_numeric(values.map(lambda v: _with_point(v, decimal_comma)))
    except (TypeError, ValueError):
        return values


def _with_point(cell: object, decimal_comma: bool) -> object:
    if decimal_comma and isinstance(cell, str) and _DECIMAL_COMMA.fullmatch(cell):
        return cell.replace(",", ".")
    return cell
