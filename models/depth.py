"""The walk over depth: all sublayers of a stack of layers, joined by a residual connection."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from models.residuals.base import QKV, Residual, Site, State

# observe(residual, state, site, x, y) -> a tree of arrays. Of one sublayer: the residual connection
# and the state as `read` is given them, what it read and what it put out. The last call is of the
# readout: y is None, site n_sublayers. In a scan `site` is traced.
Observe = Callable[[Residual, State, Site, Array | QKV, Array | None], Any]


class Layer(Protocol):
    """Two sublayers, f_2i and f_2i+1."""

    def attend(self, x: Float[Array, "B T D"] | QKV, keys_values) -> tuple[Array, Any]:
        """The output, and the third of what `keys_values(k, v)` returned."""

    def feed_forward(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """The output."""


class Step(NamedTuple):
    """Some sublayers of one layer, or of several layers stacked for a scan."""

    layer: Layer
    by_layer: list[Array]  # rows of the residual connection's own parameters
    by_sublayer: list[Array]


def walk(residual: Residual, x_BTD: Float[Array, "B T D"], layers: Layer) -> Float[Array, "B T D"]:
    """What `residual` reads out after all sublayers; see `final_state` for the rest.

    Raises:
      ValueError: the residual connection returns no State, or something of another shape or dtype
        than it must, or changes the history within a segment.
    """
    return observed_walk(residual, x_BTD, layers, _nothing)[0]


def observed_walk(
    residual: Residual, x_BTD: Float[Array, "B T D"], layers: Layer, observe: Observe
) -> tuple[Float[Array, "B T D"], list]:
    """`walk`, and a list of what `observe` has returned: [n_sublayers + 1], the readout's last.

    Works inside scans and recomputed layers, so that a model needs no change to be observed.

    Raises:
      ValueError: as `walk`.
    """
    state, seen = _all_sublayers(residual, x_BTD, layers, observe)
    out_BTD = residual.readout(state)
    _check(residual, "readout", out_BTD, x_BTD)
    return out_BTD, [*seen, observe(residual, state, residual.cfg.n_sublayers, out_BTD, None)]


def final_state(residual: Residual, x_BTD: Float[Array, "B T D"], layers: Layer) -> State:
    """The state after all sublayers.

    Args:
      residual: with its configuration, which says what is scanned and what is computed again.
      x_BTD: the token embedding.
      layers: stacked, [n_layers, ...] in every leaf: depth is data, not code.
    """
    return _all_sublayers(residual, x_BTD, layers, _nothing)[0]


def _nothing(*_) -> None:
    """Observes nothing."""


def _all_sublayers(residual, x_BTD, layers: Layer, observe: Observe) -> tuple[State, list]:
    segments, seen = residual.segments(residual.cfg), []
    steps = _steps(residual, layers, segments)
    run = _run_segment
    if residual.remat(residual.cfg) == "block":
        run = jax.checkpoint(run, static_argnums=(3, 4))
    state = _state(residual, "init", residual.init(x_BTD))
    for segment in segments:
        state, found = run(residual, state, steps[segment], segment, observe)
        seen += found
    return state, seen


def _run_segment(
    residual: Residual, state: State, steps: list[Step], segment: range, observe: Observe
) -> tuple[State, list]:
    """All sublayers of a segment, in one scan or one after the other."""
    state, seen = _state(residual, "begin", residual.begin(state, segment)), []
    if residual.is_scanned(residual.cfg, segment):
        state, seen = _scan(residual, state, segment, steps[0], observe)
    else:
        for step, sites in zip(steps, _by_layer(segment), strict=True):
            state, found = _run(residual, state, step, sites, segment.start, observe)
            seen += found
    return _state(residual, "end", residual.end(state, segment)), seen


def _run(
    residual: Residual, state: State, step: Step, sites: range, first: int, observe: Observe
) -> tuple[State, list]:
    """The sublayers `sites` of one layer, in a segment that starts at `first`."""

    def run(residual: Residual, step: Step, state: State) -> tuple[State, list]:
        seen = []
        for row, site in enumerate(sites):
            view, one = _view(residual, step, row), state.row(site - first)
            written, found = _sublayer(view, one, step.layer, site, site % 2, observe)
            state = state._replace(carry=written.carry)
            seen.append(found)
        return state, seen

    if residual.remat(residual.cfg) == "layer":
        run = jax.checkpoint(run)
    return run(residual, step, state)


def _scan(
    residual: Residual, state: State, segment: range, stack: Step, observe: Observe
) -> tuple[State, list]:
    """The layers of a segment as one loop, with the history closed over."""

    def body(carry, inputs):
        step, reads, first = inputs
        seen = []
        for row in range(2):
            view, one = _view(residual, step, row), State(state.history, carry, reads).row(row)
            written, found = _sublayer(view, one, step.layer, first + row, row, observe)
            carry = written.carry
            seen.append(found)
        return carry, seen

    if residual.remat(residual.cfg) == "layer":
        body = jax.checkpoint(body, prevent_cse=False)

    def pairs(tree):  # [sublayers, ...] -> [layers, 2, ...]
        return jax.tree.map(lambda x: x.reshape(-1, 2, *x.shape[1:]), tree)

    stack = stack._replace(by_sublayer=pairs(stack.by_sublayer))
    inputs = (stack, pairs(state.reads), jnp.arange(segment.start, segment.stop, 2))
    carry, seen = jax.lax.scan(body, state.carry, inputs)
    layers = [jax.tree.map(lambda leaf, i=i: leaf[i], seen) for i in range(len(segment) // 2)]
    return State(state.history, carry), [found for pair in layers for found in pair]


def _sublayer(
    residual: Residual, state: State, layer: Layer, site, kind: int, observe: Observe
) -> tuple[State, Any]:
    """One sublayer, from its read to its write; kind 0 is attention, 1 the MLP."""
    prepared = residual.prepare(state._replace(is_attention=kind == 0), site)
    prepared = _state(residual, "prepare", prepared)
    x = residual.read(prepared, site)
    for way_BTD in x if isinstance(x, QKV) and kind == 0 else [x]:
        _check(residual, "read", way_BTD, None)
    attended = prepared
    if kind == 0:
        y_BTD, attended = layer.attend(x, partial(_keys_values, residual, prepared, site))
    else:
        y_BTD = layer.feed_forward(x)
    written = _state(residual, "write", residual.write(attended, site, y_BTD))
    if written.history is not state.history:
        raise ValueError(
            f"{type(residual).__name__} changes state.history within a segment, where it is "
            "constant; let `write` keep what changes in `carry`, and `end` move it to the history"
        )
    return written, observe(residual, prepared, site, x, y_BTD)


def _keys_values(residual: Residual, state: State, site, k_BTKH: Array, v_BTKH: Array):
    """What `residual` makes of the keys and values, looked at."""
    given = residual.keys_values(state, site, k_BTKH, v_BTKH)
    wanted = [(k_BTKH.shape, k_BTKH.dtype), (v_BTKH.shape, v_BTKH.dtype)]
    values = given[:2] if isinstance(given, tuple) and len(given) == 3 else ()
    found = [(getattr(x, "shape", None), getattr(x, "dtype", None)) for x in values]
    if found != wanted:
        said = (
            ", ".join(f"{d} {list(s)}" for s, d in found if s is not None) or type(given).__name__
        )
        raise ValueError(
            f"{type(residual).__name__}.keys_values returned {said}; it must return keys, values "
            f"(both {k_BTKH.dtype} {list(k_BTKH.shape)}) and the state"
        )
    k, v, state = given
    return k, v, _state(residual, "keys_values", state)


def _state(residual: Residual, method: str, given: Any) -> State:
    """What a method returned, if it is a state."""
    if not isinstance(given, State):
        name, kind = type(residual).__name__, type(given).__name__
        raise ValueError(f"{name}.{method} returned {kind}, not a State")
    return given


def _check(residual: Residual, method: str, x: Any, like: Array | None) -> None:
    """A plug-in's mistakes are named where they are made."""
    name, D = type(residual).__name__, residual.cfg.d_model
    wanted = f"[batch, positions, {D}]" if like is None else list(like.shape)
    if not isinstance(x, jax.Array):
        raise ValueError(f"{name}.{method} returned {type(x).__name__}, not an array {wanted}")
    if x.dtype != residual.cfg.dtype:
        raise ValueError(f"{name}.{method} returned {x.dtype}, not {residual.cfg.dtype}; cast it")
    if x.ndim != 3 or x.shape[-1] != D or (like is not None and x.shape != like.shape):
        raise ValueError(f"{name}.{method} returned an array {list(x.shape)}, not {wanted}")


def _by_layer(segment: range) -> list[range]:
    """The sublayers of a segment that one layer holds, for each of its layers."""
    pairs = itertools.groupby(segment, key=lambda site: site // 2)
    return [range(sites[0], sites[-1] + 1) for sites in (list(group) for _, group in pairs)]


def _view(residual: Residual, step: Step, row: int) -> Residual:
    """The residual connection as one sublayer sees it; see models.residuals.base."""
    by = {"layer": iter(step.by_layer), "sublayer": (rows[row] for rows in step.by_sublayer)}
    leaves, treedef = jax.tree.flatten(residual)
    axes = _first_axes(residual)
    return treedef.unflatten(
        [next(by[axis]) if axis in by else leaf for axis, leaf in zip(axes, leaves, strict=True)]
    )


def _first_axes(residual: Residual) -> list[str | None]:
    """Of each parameter, the first logical axis."""
    variables = jax.tree.leaves(residual, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))
    return [(*v.get_metadata().get("axes", ()), None)[0] for v in variables]


def _steps(residual: Residual, layers: Layer, segments: list[range]) -> dict[range, list[Step]]:
    """Each segment's steps: one stack where a scan runs over them, single layers elsewhere."""
    scanned = {s: residual.is_scanned(residual.cfg, s) for s in segments}
    sites = {s: [s] if scanned[s] else _by_layer(s) for s in segments}
    every = [run for s in segments for run in sites[s]]
    layers_of = {run: range(run.start // 2, (run.stop + 1) // 2) for run in every}
    spans = list(dict.fromkeys(layers_of.values()))  # one that two segments share, once
    leaves = list(zip(_first_axes(residual), jax.tree.leaves(residual), strict=True))
    by = {axis: [leaf for a, leaf in leaves if a == axis] for axis in ("layer", "sublayer")}
    stacks = dict(zip(spans, _split((layers, by["layer"]), map(len, spans)), strict=True))
    for span, stack in stacks.items():
        if len(span) == 1:
            stacks[span] = jax.tree.map(lambda leaf: leaf[0], stack)
    rows = dict(zip(every, _split(by["sublayer"], map(len, every)), strict=True))
    return {s: [Step(*stacks[layers_of[run]], rows[run]) for run in sites[s]] for s in segments}


def _split(tree: Any, sizes) -> list[Any]:
    """A tree for each of the sizes, with so many rows of every leaf; what is left over is not."""
    sizes = list(sizes)
    leaves, treedef = jax.tree.flatten(tree)
    # lax.split, unlike slicing, has a concatenation for its transpose: linear in depth.
    parts = [
        jax.lax.split(leaf, [*sizes, rest] if (rest := leaf.shape[0] - sum(sizes)) else sizes)
        for leaf in leaves
    ]
    return [treedef.unflatten([part[i] for part in parts]) for i in range(len(sizes))]
