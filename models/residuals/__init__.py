"""Residual connections by name. Yours plugs in as `package.module:ClassName`."""

import difflib
import importlib

from models.residuals.base import Residual, State, is_scanned

BUILT_IN = {
    "prenorm": "models.residuals.prenorm:PreNorm",
    "attnres_block": "models.residuals.attnres:AttnResBlock",
    "attnres_full": "models.residuals.attnres:AttnResFull",
}

__all__ = ["BUILT_IN", "Residual", "State", "find", "is_scanned"]


def find(name: str) -> type[Residual]:
    """The residual connection called `name`, built in or `package.module:ClassName`.

    Raises:
      ValueError: no such name, or the named class cannot be imported or is no `Residual`.
    """
    if ":" not in name and name not in BUILT_IN:
        near = difflib.get_close_matches(name, BUILT_IN, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"built in: {', '.join(BUILT_IN)}."
        raise ValueError(
            f"no residual connection is called {name!r}; {hint} "
            "One of your own is named as package.module:ClassName."
        )
    module, _, attribute = BUILT_IN.get(name, name).partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"residual connection {name!r} cannot be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Residual)):
        raise ValueError(f"{name!r} is not a subclass of models.residuals.Residual")
    return found
