"""Which document goes to validation: a rule on the content alone, so copies stay together."""

import hashlib
from collections.abc import Sequence

VALIDATION_SHARE = 0.05


def digest(text: bytes) -> bytes:
    """The 32 bytes that decide a document's split and its place in it."""
    return hashlib.sha256(text).digest()


def in_validation(content: bytes) -> bool:
    # The tail decides the split and the head the order, so neither says anything of the other.
    return int.from_bytes(content[-8:], "big") < VALIDATION_SHARE * 2**64


def split_by_content(digests: Sequence[bytes]) -> list[bool]:
    """True for each document that belongs to validation, about 5% of the distinct ones.

    In a small set chance may leave one side empty; then the distinct document of the smallest
    (largest) digest is moved there, so that two distinct documents always fill both splits.
    """
    chosen = {d for d in digests if in_validation(d)}
    distinct = set(digests)
    if len(distinct) > 1 and not chosen:
        chosen = {min(distinct)}
    elif len(distinct) > 1 and chosen == distinct:
        chosen.remove(max(distinct))
    return [d in chosen for d in digests]
