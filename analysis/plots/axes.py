"""Ticks that a person can read."""

import numpy as np
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
)

COMPUTE = "training compute (PFLOP/s-days"
LEAST_MARGIN = 1.001  # above and below values that are all the same


def decimals(axis, most: int = 6) -> None:
    """Plain decimals on a log axis, which over a factor of 1.2 shows no power of ten."""
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.4g}"))


def powers(axis, low: float, high: float, inches: float = 5.0) -> None:
    """Ticks of a log axis that is `inches` long: at 1, 2, 5 where these have room, else at 1, 3, or
    at powers of ten; at round numbers between them where the range holds fewer than two."""
    label = 0.33 if low >= 1e-3 and high < 1e4 else 0.62
    tried = {subs: _within(subs, low / 1.001, 1.001 * high) for subs in ((1, 2, 5), (1, 3), (1,))}
    room = [subs for subs, n in tried.items() if n * label < inches and n > 1]
    several = [subs for subs, n in reversed(tried.items()) if n > 1]
    if several:
        locator = LogLocator(subs=(room or several)[0])
    else:
        locator = MaxNLocator(max(2, min(4, int(inches / label / 1.5))), steps=[1, 2, 5, 10])
    axis.set_major_locator(locator)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(_power_label))


def _within(subs: tuple[int, ...], low: float, high: float) -> int:
    """How many ticks lie in a range."""
    powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    ticks = np.outer(powers, subs)
    return int(((ticks >= low) & (ticks <= high)).sum())


def values(axis, low: float, high: float, inches: float = 2.5) -> None:
    """Ticks of a log axis: plain decimals within a factor of ten, powers beyond."""
    if high / low < 10:
        decimals(axis, most=max(3, min(6, int(inches / 0.28))))
    else:
        powers(axis, low, high, 1.6 * inches)  # labels are lower than they are wide


def at(axis, ticks, labels=None) -> None:
    """Ticks where they are said to be, on any scale."""
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    names = dict(zip(ticks, labels or [f"{t:g}" for t in ticks], strict=True))
    axis.set_major_formatter(FuncFormatter(lambda v, _: names.get(v, "")))


def counts(axis, most: int = 5) -> None:
    """Whole numbers, with k and M for thousands and millions."""
    axis.set_major_locator(MaxNLocator(most, integer=True, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda v, _: count(v)))


def count(value: float) -> str:
    """As 250k."""
    for unit, factor in (("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:g}{unit}"
    return f"{value:g}"


def power(value: float) -> str:
    """As 0.2, 30, or 2 x 10^-9 set as mathematics."""
    return _power_label(value, None)


def _power_label(value: float, _position) -> str:
    if 1e-3 <= value < 1e4:
        return f"{value:.4g}"
    mantissa, exponent = f"{value:.2e}".split("e")
    mantissa, power = f"{float(mantissa):g}", f"10^{{{int(exponent)}}}"
    return f"${power}$" if mantissa == "1" else rf"${mantissa}\times{power}$"


def log_limits(low: float, high: float, share: float = 0.05) -> tuple[float, float]:
    """Limits of a log axis with a margin on both sides, also where low is high."""
    margin = max((high / low) ** share, LEAST_MARGIN)
    return low / margin, high * margin


def hide(axes, n: int, columns: int) -> None:
    """Without the panels after the first n; what stands above a hidden one gets its tick labels."""
    for axis in axes[n:]:
        axis.set_visible(False)
    for axis in axes[max(0, n - columns) : n]:
        axis.xaxis.set_tick_params(labelbottom=True)


def few(axis, inches: float) -> None:
    """Round ticks of a linear axis that is `inches` long, no more than have room."""
    axis.set_major_locator(MaxNLocator(max(2, min(6, int(inches / 0.45)))))
