"""Which learning rate a cell has, and whose sweep chose it."""

from typing import NamedTuple

from scaling.study import Study


class Rate(NamedTuple):
    """A cell's peak learning rate, and the variant whose sweep it lies in; "" where none does."""

    learning_rate: float
    swept_for: str


def rate_of(study: Study, size: str, variant: str) -> Rate:
    """train.learning_rate, else the size's rate for this variant, else the size's.

    A rate was swept for the variant itself or, as in the AttnRes paper, for the baseline alone: the
    one or the other is known from the study's learning_rate_sweep, if the rate lies in its range.
    """
    spec = study.sizes[size]
    rate = study.train.learning_rate or spec.learning_rates.get(variant, spec.learning_rate)
    for owner in (variant, study.baseline):
        tried = study.learning_rate_sweep.get(owner, {}).get(size)
        if tried and min(tried) <= rate <= max(tried):
            return Rate(rate, owner)
    return Rate(rate, "")
