"""Which learning rate a cell has, and whose sweep chose it."""

import math
from typing import NamedTuple

from scaling.study import Study


class Rate(NamedTuple):
    """A cell's peak learning rate, and the variant whose sweep chose it; "" where none did."""

    learning_rate: float
    swept_for: str


def rate_of(study: Study, size: str, variant: str) -> Rate:
    """train.learning_rate, else the size's rate for this variant, else the size's.

    The ladder's rates were swept for the variant itself or, as in the AttnRes paper, for the
    baseline alone: which, the study's learning_rate_sweep tells, if the rate lies between the
    neighbours of the best one that was tried.
    """
    spec = study.sizes[size]
    if study.train.learning_rate:
        return Rate(study.train.learning_rate, "")
    rate = spec.learning_rates.get(variant, spec.learning_rate)
    owners = (variant,) if variant in spec.learning_rates else (variant, study.baseline)
    for owner in owners:
        tried = study.learning_rate_sweep.get(owner, {}).get(size)
        if tried and _is_best(rate, tried):
            return Rate(rate, owner)
    return Rate(rate, "")


def _is_best(rate: float, tried: dict[float, float | None]) -> bool:
    rates = sorted(tried)
    losses = [math.inf if tried[r] is None else tried[r] for r in rates]
    i = losses.index(min(losses))
    low, high = rates[max(i - 1, 0)], rates[min(i + 1, len(rates) - 1)]
    return low <= rate <= high
