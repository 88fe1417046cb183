"""The decoder-only Transformer, with its residual connection plugged in."""

import itertools

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from models.config import ModelConfig
from models.layers import Layer, RMSNorm
from models.params import fan_in, param
from models.residuals import Residual, State, find, is_scanned

EMBEDDING_STD = 0.02
RESIDUAL_STREAM = 0xD  # keeps the residual's draws apart from the shared parameters'


class Transformer(nnx.Module):
    """tokens -> embedding -> sublayers joined by `cfg.residual` -> RMSNorm -> head.

    All parameters but the residual's own depend on `key` and the sizes only, so that variants of
    one seed start from identical shared weights.
    """

    def __init__(self, cfg: ModelConfig, key: jax.Array):
        k_embed, k_layers, k_head = jax.random.split(key, 3)
        V, D = cfg.vocab_size, cfg.d_model
        normal = jax.nn.initializers.normal(EMBEDDING_STD)
        self.embed = param(k_embed, (V, D), normal, axes=("vocab", "embed"), group="embedding")
        # One stacked Layer, [n_layers, ...] in every leaf: depth is data, not code.
        self.layers = jax.vmap(lambda k: Layer(cfg, k))(jax.random.split(k_layers, cfg.n_layers))
        self.final_norm = RMSNorm(D, cfg.norm_eps)
        if not cfg.tie_embeddings:
            axes = ("embed", "vocab")
            self.head = param(k_head, (D, V), fan_in(), axes=axes, group="embedding")
        self.residual = make_residual(cfg, key)
        self.cfg = cfg

    def __call__(self, tokens_BT: Int[Array, "B T"]) -> Float[Array, "B T V"]:
        """Next-token logits, in fp32."""
        cfg, residual = self.cfg, self.residual
        state = residual.init(self.embed[tokens_BT].astype(cfg.dtype))
        segments = residual.segments(cfg)
        stacks = _stacks(self.layers, cfg, segments)
        for segment in segments:
            state = residual.begin(state, segment)
            if is_scanned(cfg, segment):
                state = _scan(residual, state, segment, stacks[segment.start // 2])
            else:
                for layer, sites in itertools.groupby(segment, key=lambda site: site // 2):
                    state = _run(residual, state, stacks[layer], list(sites))
            state = residual.end(state, segment)
        x_BTD = self.final_norm(residual.readout(state))
        head_DV = self.embed[...].T if cfg.tie_embeddings else self.head[...]
        return jnp.einsum(
            "btd,dv->btv", x_BTD, head_DV.astype(cfg.dtype), preferred_element_type=jnp.float32
        )


def make_residual(cfg: ModelConfig, key: jax.Array) -> Residual:
    """The residual connection of a model made from `key`, with its own parameters."""
    return find(cfg.residual.name)(cfg, jax.random.fold_in(key, RESIDUAL_STREAM))


def _run(residual: Residual, state: State, layer: Layer, sites: list) -> State:
    """The sublayers `sites` of one layer."""

    def run(residual: Residual, layer: Layer, state: State) -> State:
        for site in sites:
            sublayer = layer.sublayers[site % 2]
            state = residual.write(state, site, sublayer(residual.read(state, site)))
        return state

    if residual.cfg.remat == "layer":
        run = jax.checkpoint(run)
    return run(residual, layer, state)


def _scan(residual: Residual, state: State, segment: range, stack: Layer) -> State:
    """The layers of a segment as one loop, with the history closed over."""

    def body(carry, step):
        layer, first = step
        state = State(history, carry)
        for offset, sublayer in enumerate(layer.sublayers):
            site = first + offset
            state = residual.write(state, site, sublayer(residual.read(state, site)))
        return state.carry, None

    history = state.history
    if residual.cfg.remat == "layer":
        body = jax.checkpoint(body, prevent_cse=False)
    carry, _ = jax.lax.scan(body, state.carry, (stack, jnp.arange(segment.start, segment.stop, 2)))
    return State(history, carry)


def _stacks(layers: Layer, cfg: ModelConfig, segments: list[range]) -> dict[int, Layer]:
    """Layers by the index of the first: stacked where a scan runs over them, single elsewhere."""
    sizes = []
    for segment in segments:
        if is_scanned(cfg, segment):
            sizes.append(len(segment) // 2)
        else:
            sizes += [1 for site in segment if site % 2 == 0]
    leaves, treedef = jax.tree.flatten(layers)
    # lax.split, unlike slicing, has a concatenation for its transpose: linear in depth.
    parts = zip(*(jax.lax.split(leaf, sizes) for leaf in leaves), strict=True)
    firsts = itertools.accumulate(sizes, initial=0)
    return {
        first: treedef.unflatten(part if size > 1 else [leaf[0] for leaf in part])
        for first, size, part in zip(firsts, sizes, parts, strict=False)
    }
