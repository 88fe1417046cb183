"""The one error this package raises about its input: a sentence, with a code a program can read."""

import difflib
from collections.abc import Iterable


class Refusal(ValueError):  # noqa: N818 - not a fault, an answer
    """The input does not support the answer that was asked for.

    `code` is a short slug ("too-few-sizes"); the message says what was given, what was needed and
    what to do.
    """

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code

    def __reduce__(self):
        return type(self), (self.code, str(self))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """ " Did you mean 'x'?" for the closest known name, or an empty string."""
    by_lower = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return f" Did you mean '{by_lower[close[0]]}'?" if close else ""


def listed(names: Iterable[object]) -> str:
    """Names as a readable list: 'a', 'b', 'c'."""
    return ", ".join(f"'{n}'" for n in names) or "nothing"
