"""How far a multiplier moves when what it rests on is changed: sizes, floor, the clock."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from analysis.cells import Pairs, pair
from analysis.errors import Refusal
from analysis.floor import Curves
from analysis.floor_multiplier import under_own_floors, under_pinned_floor, under_shared_floor
from analysis.huber import huber
from analysis.multiplier import multiplier
from analysis.record import Record
from analysis.shift import shared_exponent_shift
from analysis.stats import Estimate, mean_interval

HARDWARE = ("device_kind", "n_devices", "n_processes")
PINNED = (0.6, 0.8)  # of the least loss of all variants, so that they share a column


@dataclass(frozen=True)
class FloorSensitivity:
    """m at one compute under one assumption on E."""

    floor: str  # "0", "free", "shared" or nats
    multiplier: Estimate | None
    refused: str | None  # why there is none


@dataclass(frozen=True)
class Robustness(Record):
    """What a reviewer would change about a multiplier."""

    variant: str
    baseline: str
    at: float  # PFLOP/s-days, of the floors
    # size -> the shared-exponent multiplier without it, None where no usable slope is left
    left_out: dict[str, float | None]
    floors: tuple[FloorSensitivity, ...]  # each curve with its own exponent
    huber: Estimate | None  # one exponent, Huber's delta 1e-3; None where it is refused
    floor: Estimate | None  # shared by both curves, profile likelihood; None where refused
    single_scale: float  # from the largest size alone, at the baseline's slope
    # Seconds instead of FLOPs; None where they are not recorded, or of different hardware.
    wall_clock: Estimate | None


def robustness(
    df: pd.DataFrame,
    variant: str,
    baseline: str | None = None,
    at: float | None = None,
    level: float = 0.95,
    *,
    at_loss: float | None = None,
    seed: int = 0,
) -> Robustness:
    """Leave-one-size-out, the floor, the largest size alone, and seconds instead of FLOPs.

    Args:
      df, variant, baseline, at, level, at_loss: as of `analysis.multiplier`.
      seed: of Huber's interval.

    Raises:
      Refusal: those of `analysis.multiplier`.
    """
    m = multiplier(df, variant, baseline, at, level, at_loss=at_loss)
    names = m.baseline, m.variant
    pairs = pair(df, [*names])
    curves = {v: (np.exp(pairs.ln_compute[v]), np.exp(pairs.ln_loss(v))) for v in names}
    floors, floor = _floors(curves, *names, m.at, float(df["loss"].min()), level, at_loss)
    one = m.crosses_at is None  # multiplier there is
    return Robustness(
        variant=m.variant,
        baseline=m.baseline,
        at=m.at,
        left_out=_left_out(pairs, *names, level) if one else {},
        floors=floors,
        huber=_huber(curves, *names, level, seed) if one else None,
        floor=floor,
        single_scale=m.by_size[-1].value,
        wall_clock=_wall_clock(df, m.shared, *names) if one else None,
    )


def _left_out(pairs: Pairs, base: str, variant: str, level: float) -> dict[str, float]:
    """Empty where only three sizes are shared."""
    if len(pairs.sizes) < 4:
        return {}
    x_b, x_v = pairs.ln_compute[base], pairs.ln_compute[variant]
    y_b, y_v = pairs.ln_loss(base), pairs.ln_loss(variant)
    found = {}
    for i, size in enumerate(pairs.sizes):
        kept = np.arange(len(pairs.sizes)) != i
        try:
            shift = shared_exponent_shift(x_b[kept], y_b[kept], x_v[kept], y_v[kept], level)
        except Refusal:  # what is left has no slope
            found[size] = None
            continue
        found[size] = float(np.exp(shift.ln_m.value)) if shift.alpha.low > 0 else None
    return found


def _huber(curves: Curves, base: str, variant: str, level: float, seed: int) -> Estimate | None:
    try:
        return huber(curves, base, variant, level=level, seed=seed)
    except Refusal:
        return None


def _floors(
    curves: Curves,
    base: str,
    variant: str,
    at: float,
    least: float,
    level: float,
    at_loss: float | None,
) -> tuple[tuple[FloorSensitivity, ...], Estimate | None]:
    """m under each floor; and the floor itself, if both curves share one."""
    names, of_both = (base, variant), []

    def shared() -> Estimate:
        of_both.append(under_shared_floor(curves, *names, at, level, at_loss))
        return of_both[0].multiplier

    pinned = [0.0, *(round(share * least, 2) for share in PINNED)]
    there = at, level, at_loss
    ways = {f"{E:g}": partial(under_pinned_floor, curves, *names, E, *there) for E in pinned}
    ways |= {"shared": shared, "free": partial(under_own_floors, curves, *names, *there)}
    rows = []
    for floor, find in ways.items():
        try:
            rows.append(FloorSensitivity(floor, find(), None))
        except Refusal as reason:
            rows.append(FloorSensitivity(floor, None, str(reason)))
    return tuple(rows), of_both[0].E if of_both else None


def _wall_clock(df: pd.DataFrame, flops: Estimate, base: str, variant: str) -> Estimate | None:
    """m times the variant's FLOPs a second over the baseline's, both measured, paired by size.

    The baseline would need m C FLOPs, which take it m C / rate_base; the variant took C /
    rate_variant. The two relative errors are independent and add in squares.
    """
    if "train_seconds" not in df:
        return None
    runs = df[df["variant"].isin((base, variant))]
    if any(column in df and runs[column].nunique() > 1 for column in HARDWARE):
        return None  # of different machines
    seconds = pd.to_numeric(runs["train_seconds"], errors="coerce")
    if not (np.isfinite(seconds) & (seconds > 0)).all():
        return None
    rate = np.log(runs["train_flops"] / seconds)
    by_size = rate.groupby([runs["variant"], runs["size"]]).mean().unstack(0).dropna()
    if len(by_size) < 2:
        return None
    ratio = mean_interval((by_size[variant] - by_size[base]).to_numpy(), flops.level)
    value = np.log(flops.value) + ratio.value
    low = np.hypot(np.log(flops.value / flops.low), ratio.value - ratio.low)
    high = np.hypot(np.log(flops.high / flops.value), ratio.high - ratio.value)
    return Estimate(value, value - low, value + high, flops.level).exp()
