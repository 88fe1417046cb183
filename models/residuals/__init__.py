"""Residual connections by name. Yours plugs in as `package.module:ClassName`."""

import difflib
import hashlib
import importlib
import inspect

import jax
from flax import nnx

from models.config import ModelConfig
from models.residuals.base import Residual, State

BUILT_IN = {
    "prenorm": "models.residuals.prenorm:PreNorm",
    "attnres_block": "models.residuals.attnres:AttnResBlock",
    "attnres_full": "models.residuals.attnres:AttnResFull",
}

REQUIRED = ("init", "read", "write", "readout", "extra_params", "flops_per_token")

__all__ = [
    "BUILT_IN",
    "Residual",
    "State",
    "check_parameters",
    "find",
    "source_sha256",
]


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
    missing = [m for m in REQUIRED if _function(found, m) is _function(Residual, m)]
    if missing:
        raise ValueError(f"{name!r} must define {', '.join(missing)}; see models.residuals.base")
    return found


def _function(kind: type, method: str) -> object:
    found = getattr(kind, method)
    return getattr(found, "__func__", found)  # the function under a classmethod


def check_parameters(cfg: ModelConfig) -> None:
    """Makes sure that a residual connection's parameters are as it declares them.

    Raises:
      ValueError: their number is not `extra_params`, or one was not made by `models.params.param`.
    """
    name = cfg.residual.name
    kind, key = find(name), jax.eval_shape(lambda: jax.random.key(0))
    state = nnx.split(jax.eval_shape(lambda key: kind(cfg, key), key))[1]
    leaves = jax.tree.leaves(state, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))
    if not all("group" in leaf.get_metadata() for leaf in leaves):
        raise ValueError(
            f"{name!r} has a parameter without an optimizer group; make it with models.params.param"
        )
    counted, declared = sum(leaf.size for leaf in leaves), kind.extra_params(cfg)
    if counted != declared:
        raise ValueError(f"{name!r} declares extra_params {declared}, but has {counted}")


def source_sha256(name: str) -> str | None:
    """The hash of the file that a plug-in lies in, None for what is built in.

    It is part of a run's identity: an edited plug-in is another experiment.
    """
    if name in BUILT_IN:
        return None
    return hashlib.sha256(inspect.getsource(inspect.getmodule(find(name))).encode()).hexdigest()
