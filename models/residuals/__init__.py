"""Residual connections by name. Yours plugs in as `package.module:ClassName`."""

import difflib
import hashlib
import importlib
import inspect

from models.residuals.base import QKV, Residual, State, frozen

BUILT_IN = {
    name: f"models.residuals.{place}"
    for name, place in {
        "prenorm": "prenorm:PreNorm",
        "attnres_full": "attnres:AttnResFull",
        "attnres_block": "attnres:AttnResBlock",
        "attnres_swa": "attnres:AttnResSWA",
        "postnorm": "postnorm:PostNorm",
        "sandwich": "sandwich:Sandwich",
        "deepnorm": "deepnorm:DeepNorm",
        "keel": "keel:Keel",
        "rezero": "rezero:ReZero",
        "layerscale": "layerscale:LayerScale",
        "residual_scalars": "residual_scalars:ResidualScalars",
        "rescaled": "rescaled:Rescaled",
        "highway": "highway:Highway",
        "laurel": "laurel:Laurel",
        "ddl": "ddl:DeepDelta",
        "siamese": "siamese:Siamese",
        "hc": "hc:HyperConnections",
        "mhc": "mhc:ManifoldHC",
        "mhc_lite": "mhc_lite:MHCLite",
        "ihc": "ihc:IdentityHC",
        "denseformer": "denseformer:DenseFormer",
        "mudd": "mudd:MUDD",
        "dca": "dca:DeepCrossAttention",
        "lime": "lime:LIMe",
        "ancre": "ancre:ANCRe",
        "mrla": "mrla:MRLA",
        "value_residual": "value_residual:ValueResidual",
        "mixer": "mixer:Mixer",
    }.items()
}

REQUIRED = ("init", "read", "write", "readout", "extra_params", "flops_per_token")

__all__ = [
    "BUILT_IN",
    "QKV",
    "Residual",
    "State",
    "find",
    "frozen",
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
    except (Exception, SystemExit) as error:  # whatever the user's file may do
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"residual connection {name!r} cannot be imported: {reason}") from error
    if not (isinstance(found, type) and issubclass(found, Residual)):
        raise ValueError(f"{name!r} is not a subclass of models.residuals.Residual")
    missing = [m for m in REQUIRED if _function(found, m) is _function(Residual, m)]
    if missing:
        raise ValueError(f"{name!r} must define {', '.join(missing)}; see models.residuals.base")
    return found


def _function(kind: type, method: str) -> object:
    found = getattr(kind, method)
    return getattr(found, "__func__", found)  # the function under a classmethod


def source_sha256(name: str) -> str | None:
    """The hash of the file that a plug-in lies in, None for what is built in.

    It is part of a run's identity: an edited plug-in is another experiment.
    """
    if name in BUILT_IN:
        return None
    return hashlib.sha256(inspect.getsource(inspect.getmodule(find(name))).encode()).hexdigest()
