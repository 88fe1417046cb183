"""What the dataclasses of results have in common."""

import math
from dataclasses import asdict
from typing import Any


class Record:
    """A dataclass that goes into fits.json."""

    def to_dict(self) -> dict:
        """Plain numbers, strings, lists and dicts, at full precision."""
        return asdict(self)


def plain(value: Any) -> Any:
    """For JSON, which has no infinite numbers: null in their place."""
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
