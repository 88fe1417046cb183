"""Cells that must be numbers, and cells that may be."""

import re
from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa

from analysis.errors import Refusal

_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")


def numeric_column(
    values: pd.Series, name: str, where: Callable[[int], str], decimal_comma: bool
) -> pd.Series:
    """A column of finite, positive float64; a refusal naming the first line that is not."""
    if decimal_comma:
        values = values.map(_with_point)
    try:
        # Where Arrow reads a number, so does Python, and the same; it takes a tenth of the time.
        numbers = pa.array(values).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    except (pa.ArrowException, OverflowError):
        numbers = np.array([np.nan])
    if not (np.isfinite(numbers) & (numbers > 0)).all():
        numbers = [_number(cell, f"{where(i)}: `{name}`") for i, cell in enumerate(values)]
    return pd.Series(numbers, index=values.index, dtype=float)


def _number(cell: object, where: str) -> float:
    if cell is None or cell is pd.NA or str(cell).strip() == "":
        raise Refusal("missing-value", f"{where} is empty; a number is needed.")
    try:
        if "_" in str(cell):  # which Python takes for a digit separator
            raise ValueError
        number = float(cell)
    except (TypeError, ValueError, OverflowError):
        raise Refusal(
            "not-a-number",
            f"{where} is '{cell}', which is not a number. Write it plainly, such as 1.931 or "
            "4.5e19, without units or percent signs.",
        ) from None
    if not np.isfinite(number):
        raise Refusal(
            "not-finite",
            f"{where} is {cell}. A diverged run cannot be fitted: give it a `status` other than "
            "'done' or leave the row out.",
        )
    if number <= 0:
        raise Refusal("not-positive", f"{where} is {cell}; a power law needs values above 0.")
    return number


def plain_numbers(values: pd.Series, decimal_comma: bool) -> pd.Series:
    """The column as numbers if every cell is one, unchanged otherwise."""
    if values.dtype != object and not pd.api.types.is_string_dtype(values):
        return values
    try:
        return pd.to_numeric(values.map(_with_point) if decimal_comma else values)
    except (TypeError, ValueError):
        return values


def _with_point(cell: object) -> object:
    if isinstance(cell, str) and _DECIMAL_COMMA.fullmatch(cell):
        return cell.replace(",", ".")
    return cell
