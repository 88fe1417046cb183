"""What the dataclasses of results have in common."""

from dataclasses import asdict


class Record:
    """A dataclass that goes into fits.json."""

    def to_dict(self) -> dict:
        """Plain numbers, strings, lists and dicts, at full precision."""
        return asdict(self)
