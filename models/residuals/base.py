"""The residual protocol: how a sublayer reads earlier outputs, and how its own is recorded.

A variant is one subclass of `Residual` in one file. The model walks the sublayers 0 .. 2*n_layers-1
(attention and MLP alternate) and calls

    state = residual.init(embedding)
    for segment in residual.segments(cfg):          # ranges of sublayers
        state = residual.begin(state, segment)
        for site in segment:
            state = row.prepare(state, site)
            h = row.read(state, site)
            y, state = sublayer[site](h)            # attention calls row.keys_values
            state = row.write(state, site, y)
        state = residual.end(state, segment)
    hidden = residual.readout(state)

`row` is a view of the residual connection, in which a parameter whose first logical axis is
"sublayer" is the row of that sublayer alone, and one whose first axis is "layer" that of its layer.
So `self.scale` with axes ("sublayer",) is a number in `read` and `write`, and the whole stack in
the other methods. Rows past the last sublayer (or layer) are the readout's.

A segment of several whole layers runs as one `lax.scan`: there `site` is traced and `state.carry`
must keep its structure. `state.history` is constant inside a segment, so the scan closes over it
and backward never saves it once a layer. Of `state.reads`, which `begin` may make, each sublayer is
given its own `row`; in a scan it must hold arrays with one row a sublayer.

Parameters are made by `models.params.param`, which names what the optimizer and the sharding must
know. `models/residuals/prenorm.py` is the smallest example, `rezero.py` one with parameters.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
from flax import nnx
from jaxtyping import Array, Float, Int
from pydantic import ConfigDict

from models.config import ModelConfig, Strict

if TYPE_CHECKING:
    from models.residuals.reading import Reading

Site = int | Int[Array, ""]


class State(NamedTuple):
    """What the residual connection remembers of the sublayers run so far."""

    history: Any  # constant within a segment
    carry: Any  # changes with every sublayer
    reads: Any = None  # constant within a segment; its row(index) is what one sublayer needs
    # Of the sublayer that runs: what `prepare` made for its read and its write, and what it is.
    own: Any = None
    is_attention: bool | None = None  # static in a scan too, where `site` is traced

    def row(self, index) -> "State":
        """The state that one sublayer of the segment sees."""
        return self if self.reads is None else self._replace(reads=self.reads.row(index))


class QKV(NamedTuple):
    """Inputs of an attention sublayer's queries, keys and values, where a read tells them apart."""

    q_BTD: Float[Array, "B T D"]
    k_BTD: Float[Array, "B T D"]
    v_BTD: Float[Array, "B T D"]


class Residual(nnx.Module):
    """Base of all residual connections. Subclasses say what they cost as well as what they do."""

    class Options(Strict):
        """What a study may set for this variant; True is no number, and "4" neither."""

        model_config = ConfigDict(strict=True)

    family: ClassVar[str] = "your own"
    summary: ClassVar[str]  # one line for tables
    equation: ClassVar[str] = ""  # one line of plain text
    source: ClassVar[str]  # paper and equation
    notes: ClassVar[str] = ""  # choices where the source is silent, and departures from it
    reduces_to_prenorm_at_init: ClassVar[bool]
    # Label -> options, whose models the contract's checks, the docs and the pictures are made of.
    examples: ClassVar[dict[str, dict]] = {"": {}}
    input_norm: ClassVar[bool] = True  # whether a sublayer normalises its input
    final_norm: ClassVar[bool] = True  # whether the readout is normalised before the head

    def __init__(self, cfg: ModelConfig, key: jax.Array):
        """Creates the variant's own parameters from `key`, which no shared parameter uses."""
        self.cfg = cfg

    @classmethod
    def options(cls, cfg: ModelConfig) -> Options:
        """The validated options of this variant in `cfg`.

        Raises:
          ValueError: an option does not exist, has a wrong type, or does not fit the model.
        """
        return cls.Options(**cfg.residual.options)

    @classmethod
    def segments(cls, cfg: ModelConfig) -> list[range]:
        """Consecutive ranges of sublayers; by default the whole depth at once."""
        return [range(cfg.n_sublayers)]

    @classmethod
    def is_scanned(cls, cfg: ModelConfig, segment: range) -> bool:
        """Whether the model runs this segment of sublayers as one `lax.scan` over layers."""
        whole_layers = segment.start % 2 == 0 and len(segment) % 2 == 0
        return cfg.scan and whole_layers and len(segment) > 2

    def init(self, x_BTD: Float[Array, "B T D"]) -> State:
        """The state before sublayer 0, from the token embedding."""
        raise NotImplementedError

    def begin(self, state: State, segment: range) -> State:
        """Called before the first sublayer of each segment, outside of any scan."""
        return state

    def prepare(self, state: State, site: Site) -> State:
        """Called first for each sublayer: `own` is what both its read and its write need."""
        return state

    def read(self, state: State, site: Site) -> Float[Array, "B T D"] | QKV:
        """The input of sublayer `site`, before the sublayer's own norm."""
        raise NotImplementedError

    def keys_values(
        self, state: State, site: Site, k_BTKH: Float[Array, "B T K H"], v_BTKH
    ) -> tuple[Float[Array, "B T K H"], Float[Array, "B T K H"], State]:
        """Called inside of attention: the keys and values to attend to, before QK-norm and RoPE.

        Args:
          k_BTKH, v_BTKH: as the sublayer projects its input; [B, T, n_kv_heads, head_dim].

        Returns:
          Those to use, and the state, of which only `carry` may change.
        """
        return k_BTKH, v_BTKH, state

    def write(self, state: State, site: Site, y_BTD: Float[Array, "B T D"]) -> State:
        """The state after sublayer `site` has put out y; only `carry` may change."""
        raise NotImplementedError

    def end(self, state: State, segment: range) -> State:
        """Called after the last sublayer of each segment, outside of any scan."""
        return state

    def readout(self, state: State) -> Float[Array, "B T D"]:
        """What the final norm and the head see."""
        raise NotImplementedError

    def streams(self, state: State) -> tuple[Float[Array, "B T D"], ...]:
        """The parallel streams of a state, where there are several."""
        return ()

    def stream_mixing(self, state: State) -> Sequence[Sequence[Array]] | None:
        """Where a sublayer mixes streams: the share of x_j in x'_k, mixing[j][k].

        Each [B, T], or [] where it is the same for all tokens. Of a state that `prepare` has made.
        None: no such weights.
        """
        return None

    @classmethod
    def sources(cls, cfg: ModelConfig) -> list[tuple[int, ...]]:
        """Of attention over depth: the numbers of the sources of each read, the readout last.

        Source 0 is the embedding. Empty where reads are no weighted sums over depth.
        """
        return []

    def reading(self, state: State, site: Site) -> "Reading":
        """What `read` mixes, or `readout` if site is n_sublayers; asked where there are `sources`.

        See models.residuals.reading: for pictures and ablations, not for training.
        """
        raise NotImplementedError

    @classmethod
    def init_scales(cls, cfg: ModelConfig) -> dict[str, float]:
        """Factors on the initial weights q, k, v, out, gate, up and down of all sublayers."""
        return {}

    @classmethod
    def reduces_to_prenorm(cls, cfg: ModelConfig) -> bool:
        """Whether the model with these options is PreNorm before the first update."""
        return cls.reduces_to_prenorm_at_init

    @classmethod
    def idle(cls, cfg: ModelConfig) -> dict[str, str]:
        """Parameters, or rows as in "query[0]", that nothing depends on, each with the reason.

        Shared ones too, as in "layers.attn.v[1]", where a layer's own values are not used.
        """
        return {}

    @classmethod
    def extra_params(cls, cfg: ModelConfig) -> int:
        """Parameters of the residual connection itself, in closed form."""
        raise NotImplementedError

    @classmethod
    def flops_per_token(cls, cfg: ModelConfig) -> int:
        """Forward FLOPs of the mechanism per token, over the whole depth, in closed form.

        A multiply-add is two FLOPs; the additions that PreNorm makes too count as none.
        """
        raise NotImplementedError

    @classmethod
    def io_per_token(cls, cfg: ModelConfig) -> float | None:
        """Elements that the mechanism reads and writes per token and sublayer, averaged over depth.

        In the convention of `models.residuals.io`, whatever the kernels. None: not declared.
        """
        return None

    @classmethod
    def saved_activations(cls, cfg: ModelConfig) -> int | None:
        """Arrays [B, T, D] of the mechanism's that backward needs over the whole depth.

        Distinct ones among the inputs of sublayers and of the final norm, and what these were made
        from, kept from forward to backward under `cfg.remat`; a norm's or a sublayer's own arrays
        and those of a few scalars a token do not count. None: not declared.
        """
        return None

    @classmethod
    def streams_kept(cls, cfg: ModelConfig) -> int:
        """For `saved_activations`: one stream before each sublayer or layer, and the readout's."""
        return 1 + (cfg.n_sublayers if cls.remat(cfg) == "none" else cfg.n_layers)

    @classmethod
    def remat(cls, cfg: ModelConfig) -> str:
        """What backward computes again: "none", a "layer" or a "block".

        Where all depth is one segment, a block would be everything; then it is a layer.
        """
        one_segment = len(cls.segments(cfg)) == 1
        return "layer" if cfg.remat == "block" and one_segment else cfg.remat


_weights_are_frozen: ContextVar[bool] = ContextVar("weights_are_frozen", default=False)


@contextmanager
def frozen_weights() -> Iterator[None]:
    """While a model is traced: what is given to `frozen` is a constant to derivatives."""
    token = _weights_are_frozen.set(True)
    try:
        yield
    finally:
        _weights_are_frozen.reset(token)


def frozen(weight: Array) -> Array:
    """A mixing weight, as given; a constant while a depth-mixing matrix is measured.

    Inputs of sublayers are then linear in the outputs before them, with the weights of this input.
    """
    return jax.lax.stop_gradient(weight) if _weights_are_frozen.get() else weight
