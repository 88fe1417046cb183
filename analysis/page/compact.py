"""Numbers in few bytes: a page of a hundred cells must stay small."""

import math
from typing import Any

import numpy as np


def rounded(values: Any, digits: int) -> Any:
    """A number or an array at `digits` significant digits; None where it is not finite."""
    array = np.asarray(values, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.floor(np.log10(np.abs(array)))
    places = np.where(np.isfinite(exponent), digits - 1 - exponent, 0).astype(int)
    if array.ndim == 0:
        return _plain(round(float(array), int(places))) if np.isfinite(array) else None
    return [
        _plain(round(v, p)) if math.isfinite(v) else None
        for v, p in zip(array.ravel().tolist(), places.ravel().tolist(), strict=True)
    ]


def _plain(value: float) -> float | int:
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def finite(value: Any) -> Any:
    """JSON without what JSON has no word for: infinities and NaN become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, np.generic):
        return finite(value.item())
    return value
