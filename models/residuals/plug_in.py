"""What a residual connection of one's own must be, looked at before anything is trained."""

import math
import traceback
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from models.config import ModelConfig
from models.residuals import find
from models.residuals.base import Residual
from models.sharding import LOGICAL_AXES

TRACED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
SCALES = ("q", "k", "v", "out", "gate", "up", "down")


def check_plug_in(cfg: ModelConfig) -> None:
    """Makes sure that a residual connection of the user's own is as it declares itself.

    Raises:
      ValueError: it cannot be made or run, or returns what it must not; what it declares has a
        wrong type or value; its segments leave a sublayer out; its parameters are not
        `extra_params` many, or were not made by `models.params.param`, or have other axes than
        there are.
    """
    name = cfg.residual.name
    kind, key = find(name), jax.eval_shape(lambda: jax.random.key(0))
    try:
        state = nnx.split(jax.eval_shape(lambda key: kind(cfg, key), key))[1]
        declared = _declared(kind, cfg)
    except (Exception, SystemExit) as error:  # whatever the user's code may do
        raise ValueError(f"{name!r} cannot be made: {type(error).__name__}: {error}") from error
    for what, (value, wanted, fits) in declared.items():
        if not fits(value):
            raise ValueError(f"{what} of {name!r} is {value!r}, and must be {wanted}")
    sites = [site for segment in declared["segments"][0] for site in segment]
    if sites != list(range(cfg.n_sublayers)):
        raise ValueError(
            f"the segments of {name!r} hold the sublayers {sites}, and must hold 0 to "
            f"{cfg.n_sublayers - 1}, each once and in order"
        )
    leaves = jax.tree.leaves(state, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))
    for leaf in leaves:
        _check_parameter(name, leaf)
    counted, extra = sum(leaf.size for leaf in leaves), declared["extra_params"][0]
    if counted != extra:
        raise ValueError(f"{name!r} declares extra_params {extra}, but has {counted}")
    _check_walk(cfg)


def _declared(kind: type[Residual], cfg: ModelConfig) -> dict[str, tuple]:
    """What it says of itself: name -> (value, what it must be, whether it is)."""
    whole = ("a whole number, 0 or more", lambda n: isinstance(n, Integral) and _is_number(n))
    number = ("a finite number, 0 or more", _is_number)
    truth = ("True or False", lambda b: isinstance(b, bool))
    return {
        "extra_params": (kind.extra_params(cfg), *whole),
        "flops_per_token": (kind.flops_per_token(cfg), *number),
        "io_per_token": (_or_zero(kind.io_per_token(cfg)), *number),
        "saved_activations": (_or_zero(kind.saved_activations(cfg)), *whole),
        "reduces_to_prenorm": (kind.reduces_to_prenorm(cfg), *truth),
        "input_norm": (kind.input_norm, *truth),
        "final_norm": (kind.final_norm, *truth),
        "remat": (
            kind.remat(cfg), "none, layer or block", lambda r: r in ("none", "layer", "block"),
        ),
        "segments": (
            kind.segments(cfg), "a list of ranges of sublayers, none of them empty",
            lambda s: isinstance(s, list) and all(isinstance(r, range) and r for r in s),
        ),
        "init_scales": (
            kind.init_scales(cfg), f"positive factors on some of {', '.join(SCALES)}",
            lambda d: isinstance(d, dict)
            and set(d) <= set(SCALES)
            and all(_is_number(f) and f > 0 for f in d.values()),
        ),
        "sources": (
            kind.sources(cfg),
            f"for each read a tuple of different numbers from 0 to {cfg.n_sublayers}, the "
            "readout's last, or nothing",
            lambda s: isinstance(s, list)
            and len(s) in (0, cfg.n_sublayers + 1)
            and all(_are_numbers(read, cfg.n_sublayers) for read in s),
        ),
        "idle": (
            kind.idle(cfg), "a dict from names of parameters, or rows, to reasons",
            lambda d: isinstance(d, dict) and all(isinstance(x, str) for x in (*d, *d.values())),
        ),
    }  # fmt: skip


def _are_numbers(read: Any, largest: int) -> bool:
    """Whether they are numbers of sources: one or more, none of them twice."""
    if not isinstance(read, tuple) or not read or len(set(read)) < len(read):
        return False
    return all(isinstance(n, Integral) and _is_number(n) and n <= largest for n in read)


def _or_zero(n: Any) -> Any:
    return 0 if n is None else n  # not declared


def _is_number(n: Any) -> bool:
    return isinstance(n, Real) and not isinstance(n, bool) and math.isfinite(n) and n >= 0


def _check_walk(cfg: ModelConfig) -> None:
    """Runs a model of this configuration on shapes alone."""
    from models.measures import of_sublayer
    from models.transformer import Transformer  # which imports models.residuals

    tokens = jax.ShapeDtypeStruct((1, min(cfg.seq_len, 8) + 1), "int32")
    key = jax.eval_shape(lambda: jax.random.key(0))

    def run(key, tokens):
        model = Transformer(cfg, key)
        weights = jnp.ones((1, tokens.shape[1] - 1))
        seen = model.observed_nll_sum(tokens, weights, of_sublayer)[1]
        _check_readings(model.residual, seen)
        return model(tokens[:, :-1]), seen

    try:
        with jax.numpy_dtype_promotion("standard"):  # jax.nn.dot_product_attention in bfloat16
            jax.eval_shape(run, key, tokens)
    except TRACED as error:
        raise ValueError(
            f"{cfg.residual.name!r} cannot be run: {_where(error)} asks Python for a traced value, "
            "as which `site` is in a scan and every array always; state.is_attention tells the two "
            "kinds of sublayers apart, jnp.where chooses by number, and parameters whose first "
            f'axis is "sublayer" are given row by row ({type(error).__name__})'
        ) from error
    except (Exception, SystemExit) as error:  # whatever the user's code may do
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ValueError(f"{cfg.residual.name!r} cannot be run: {reason}") from error


def _check_readings(residual: Residual, seen: list[dict]) -> None:
    """As many values in each reading as there are sources; of a scan's reads, at least as many."""
    kind, cfg = type(residual), residual.cfg
    scanned = {s for run in kind.segments(cfg) if kind.is_scanned(cfg, run) for s in run}
    for read, (one, sources) in enumerate(zip(seen, kind.sources(cfg), strict=False)):
        found, known = len(one["alpha"]), len(sources)
        if found < known or (found > known and read not in scanned):
            raise ValueError(
                f"`reading` of read {read} has {found} values, and `sources` names {known}"
            )


def _where(error: Exception) -> str:
    """The line that it came from, outside of libraries."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "site-packages" not in f.filename] or frames
    return f"line {own[-1].lineno} of {Path(own[-1].filename).name}"


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
