"""Residual connections by name. Yours plugs in as `package.module:ClassName`."""

import difflib
import hashlib
import importlib
import inspect

import jax
from flax import nnx

from models.config import ModelConfig
from models.residuals.base import QKV, Residual, State, frozen
from models.sharding import LOGICAL_AXES

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
    "check_plug_in",
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


def check_plug_in(cfg: ModelConfig) -> None:
    """Makes sure that a residual connection of the user's own is as it declares itself.

    Raises:
      ValueError: it cannot be made or run, or returns what it must not; its segments leave a
        sublayer out; its parameters are not `extra_params` many, or were not made by
        `models.params.param`, or have other axes than there are; a cost is no number.
    """
    name = cfg.residual.name
    kind, key = find(name), jax.eval_shape(lambda: jax.random.key(0))
    try:
        state = nnx.split(jax.eval_shape(lambda key: kind(cfg, key), key))[1]
        sites = [site for segment in kind.segments(cfg) for site in segment]
        costs = {cost: getattr(kind, cost)(cfg) for cost in ("extra_params", "flops_per_token")}
    except (Exception, SystemExit) as error:  # whatever the user's code may do
        raise ValueError(f"{name!r} cannot be made: {type(error).__name__}: {error}") from error
    if sites != list(range(cfg.n_sublayers)):
        raise ValueError(
            f"the segments of {name!r} hold the sublayers {sites}, and must hold 0 to "
            f"{cfg.n_sublayers - 1}, each once and in order"
        )
    for cost, number in costs.items():
        if not isinstance(number, int | float):
            raise ValueError(f"{cost} of {name!r} is {number!r}, and must be a number")
    leaves = jax.tree.leaves(state, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))
    for leaf in leaves:
        _check_parameter(name, leaf)
    counted, declared = sum(leaf.size for leaf in leaves), costs["extra_params"]
    if counted != declared:
        raise ValueError(f"{name!r} declares extra_params {declared}, but has {counted}")
    _check_walk(cfg)


def _check_walk(cfg: ModelConfig) -> None:
    """Runs a model of this configuration on shapes alone."""
    from models.transformer import Transformer  # which imports this module

    tokens = jax.ShapeDtypeStruct((1, min(cfg.seq_len, 8)), "int32")
    key = jax.eval_shape(lambda: jax.random.key(0))
    try:
        with jax.numpy_dtype_promotion("standard"):  # jax.nn.dot_product_attention in bfloat16
            jax.eval_shape(lambda key, tokens: Transformer(cfg, key)(tokens), key, tokens)
    except (Exception, SystemExit) as error:  # whatever the user's code may do
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ValueError(f"{cfg.residual.name!r} cannot be run: {reason}") from error


def _check_parameter(name: str, leaf) -> None:
    about = leaf.get_metadata()
    if "group" not in about:
        raise ValueError(
            f"{name!r} has a parameter without an optimizer group; make it with models.params.param"
        )
    axes = about["axes"]
    if (
        not isinstance(axes, tuple)
        or len(axes) != leaf.ndim
        or not set(axes) <= {*LOGICAL_AXES, None}
    ):
        raise ValueError(
            f"{name!r} has a parameter of shape {leaf.shape} with axes {axes!r}; one name a "
            f"dimension is needed, of {', '.join(LOGICAL_AXES)} or None"
        )


def source_sha256(name: str) -> str | None:
    """The hash of the file that a plug-in lies in, None for what is built in.

    It is part of a run's identity: an edited plug-in is another experiment.
    """
    if name in BUILT_IN:
        return None
    return hashlib.sha256(inspect.getsource(inspect.getmodule(find(name))).encode()).hexdigest()
