"""Errors that a user can act on."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input, said in one sentence: what was given, what is needed, what to do. Exit code 2."""


def closest(name: str, valid: Iterable[str]) -> str:
    """A hint naming the valid word nearest to `name`, or all of them where none is near."""
    valid = sorted(str(v) for v in valid)
    near = difflib.get_close_matches(str(name), valid, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"valid: {', '.join(valid)}"


def sentence(error: ValueError) -> str:
    """What is wrong in one sentence, of pydantic's errors the first: path and message."""
    if not hasattr(error, "errors"):
        return str(error)
    first = error.errors()[0]
    path = ".".join(map(str, first["loc"]))
    return f"{path and path + ': '}{first['msg'].removeprefix('Value error, ')}"
