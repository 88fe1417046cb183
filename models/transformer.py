"""The decoder-only Transformer, with its residual connection plugged in."""

import itertools

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from models.config import ModelConfig
from models.layers import STREAM, Layer, RMSNorm
from models.loss import HEAD, nll, nll_sum
from models.params import fan_in, param
from models.residuals import Residual, State, find
from models.sharding import constrain

EMBEDDING_STD = 0.02
RESIDUAL_STREAM = 0xD  # keeps the residual's draws apart from the shared parameters'


class Transformer(nnx.Module):
    """tokens -> embedding -> sublayers joined by `cfg.residual` -> RMSNorm -> head.

    All parameters but the residual's own depend on `key` and the sizes only, so that variants of
    one seed start from identical shared weights.
    """

    def __init__(self, cfg: ModelConfig, key: jax.Array):
        cfg = cfg.on_platform(jax.default_backend())
        k_embed, k_layers, k_head = jax.random.split(key, 3)
        V, D = cfg.vocab_size, cfg.d_model
        normal = jax.nn.initializers.normal(EMBEDDING_STD)
        self.embed = param(k_embed, (V, D), normal, axes=("vocab", "embed"), group="embedding")
        # One stacked Layer, [n_layers, ...] in every leaf: depth is data, not code.
        self.layers = jax.vmap(lambda k: Layer(cfg, k))(jax.random.split(k_layers, cfg.n_layers))
        self.final_norm = RMSNorm(D, cfg.norm_eps)
        if not cfg.tie_embeddings:
            self.head = param(k_head, (D, V), fan_in(), axes=HEAD, group="embedding")
        self.residual = make_residual(cfg, key)
        self.cfg = cfg

    def hidden(self, tokens_BT: Int[Array, "B T"]) -> Float[Array, "B T D"]:
        """What the head sees: the final norm of the residual connection's readout."""
        cfg, residual = self.cfg, self.residual
        x_BTD = constrain(self.embed[tokens_BT].astype(cfg.dtype), *STREAM)
        state = residual.init(x_BTD)
        segments = residual.segments(cfg)
        stacks = _stacks(self.layers, residual, segments)
        run = _run_segment
        if residual.remat(residual.cfg) == "block":
            run = jax.checkpoint(run, static_argnums=3)
        for segment in segments:
            state = run(residual, state, stacks[segment], segment)
        return self.final_norm(residual.readout(state))

    @property
    def head_DV(self) -> Float[Array, "D V"]:
        """The output matrix, in fp32."""
        return self.embed[...].T if self.cfg.tie_embeddings else self.head[...]

    def __call__(self, tokens_BT: Int[Array, "B T"]) -> Float[Array, "B T V"]:
        """Next-token logits, in fp32."""
        x_BTD = self.hidden(tokens_BT)
        head_DV = self.head_DV.astype(self.cfg.dtype)
        return jnp.einsum("btd,dv->btv", x_BTD, head_DV, preferred_element_type=jnp.float32)

    def nll(self, tokens_BT: Int[Array, "B T+1"]) -> Float[Array, "B T"]:
        """Loss of each token after the first, in nats; see `models.loss`."""
        return nll(self.hidden(tokens_BT[:, :-1]), self.head_DV, tokens_BT[:, 1:])

    def nll_sum(
        self, tokens_BT: Int[Array, "B T+1"], weights_BT: Float[Array, "B T"]
    ) -> Float[Array, ""]:
        """Their weighted sum, for training."""
        x_BTD = self.hidden(tokens_BT[:, :-1])
        return nll_sum(x_BTD, self.head_DV, tokens_BT[:, 1:], weights_BT)


def make_residual(cfg: ModelConfig, key: jax.Array) -> Residual:
    """The residual connection of a model made from `key`, with its own parameters."""
    cfg = cfg.on_platform(jax.default_backend())
    return find(cfg.residual.name)(cfg, jax.random.fold_in(key, RESIDUAL_STREAM))


def _run_segment(residual: Residual, state: State, layers: list[Layer], segment: range) -> State:
    """All sublayers of a segment, in one scan or one after the other."""
    state = residual.begin(state, segment)
    if residual.is_scanned(residual.cfg, segment):
        state = _scan(residual, state, segment, layers[0])
    else:
        by_layer = itertools.groupby(segment, key=lambda site: site // 2)
        for layer, (_, sites) in zip(layers, by_layer, strict=True):
            state = _run(residual, state, layer, list(sites), segment.start)
    return residual.end(state, segment)


def _run(residual: Residual, state: State, layer: Layer, sites: list, first: int) -> State:
    """The sublayers `sites` of one layer, in a segment that starts at `first`."""

    def run(residual: Residual, layer: Layer, state: State) -> State:
        for site in sites:
            sublayer = layer.sublayers[site % 2]
            y_BTD = sublayer(residual.read(state.row(site - first), site))
            state = residual.write(state, site, y_BTD)
        return state

    if residual.remat(residual.cfg) == "layer":
        run = jax.checkpoint(run)
    return run(residual, layer, state)


def _scan(residual: Residual, state: State, segment: range, stack: Layer) -> State:
    """The layers of a segment as one loop, with the history closed over."""

    def body(carry, step):
        layer, reads, first = step
        state = State(history, carry, reads)
        for offset, sublayer in enumerate(layer.sublayers):
            y_BTD = sublayer(residual.read(state.row(offset), first + offset))
            state = residual.write(state, first + offset, y_BTD)
        return state.carry, None

    history = state.history
    if residual.remat(residual.cfg) == "layer":
        body = jax.checkpoint(body, prevent_cse=False)
    reads = jax.tree.map(lambda x: x.reshape(-1, 2, *x.shape[1:]), state.reads)  # [layer, site, ..]
    steps = (stack, reads, jnp.arange(segment.start, segment.stop, 2))
    carry, _ = jax.lax.scan(body, state.carry, steps)
    return State(history, carry)


def _stacks(layers: Layer, residual: Residual, segments: list[range]) -> dict[range, list[Layer]]:
    """Each segment's layers: one stack where a scan runs over them, single ones elsewhere."""
    sizes = [1] * residual.cfg.n_layers  # of the stack that starts at each layer
    for segment in segments:
        if residual.is_scanned(residual.cfg, segment):
            first, last = segment.start // 2, segment.stop // 2
            sizes[first:last] = [last - first, *[0] * (last - first - 1)]
    leaves, treedef = jax.tree.flatten(layers)
    firsts = [layer for layer, size in enumerate(sizes) if size]
    # lax.split, unlike slicing, has a concatenation for its transpose: linear in depth.
    split = [jax.lax.split(leaf, [sizes[layer] for layer in firsts]) for leaf in leaves]
    stacks = {}
    for layer, *parts in zip(firsts, *split, strict=True):
        parts = parts if sizes[layer] > 1 else [part[0] for part in parts]
        stacks[layer] = treedef.unflatten(parts)
    layers_of = {s: range(s.start // 2, (s.stop + 1) // 2) for s in segments}
    return {s: [stacks[i] for i in layers_of[s] if i in stacks] for s in segments}
