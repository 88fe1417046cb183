"""The residual protocol: how a sublayer reads earlier outputs, and how its own is recorded.

A variant is one subclass of `Residual` in one file. The model walks the sublayers 0 .. 2*n_layers-1
(attention and MLP alternate) and calls

    state = residual.init(embedding)
    for segment in residual.segments(cfg):          # ranges of sublayers
        state = residual.begin(state, segment)
        for row, site in enumerate(segment):
            y = sublayer[site](residual.read(state.row(row), site))
            state = residual.write(state, site, y)
        state = residual.end(state, segment)
    hidden = residual.readout(state)

A segment of several whole layers runs as one `lax.scan`: there `site` is traced and `state.carry`
must keep its structure. `state.history` is constant inside a segment, so the scan closes over it
and backward never saves it once a layer. Of `state.reads`, which `begin` may make, each read is
given its own `row`; in a scan it must hold arrays with one row a sublayer.

Parameters are made by `models.params.param`, which names what the optimizer and the sharding must
know. `models/residuals/prenorm.py` is the smallest example, `attnres.py` one with parameters.
"""

from typing import Any, ClassVar, NamedTuple

import jax
from flax import nnx
from jaxtyping import Array, Float, Int

from models.config import ModelConfig, Strict

Site = int | Int[Array, ""]


class State(NamedTuple):
    """What the residual connection remembers of the sublayers run so far."""

    history: Any  # constant within a segment
    carry: Any  # changes with every sublayer
    reads: Any = None  # constant within a segment; its row(index) is what one sublayer needs

    def row(self, index) -> "State":
        """The state that one sublayer of the segment reads."""
        return self if self.reads is None else self._replace(reads=self.reads.row(index))


class Residual(nnx.Module):
    """Base of all residual connections. Subclasses say what they cost as well as what they do."""

    class Options(Strict):
        """What a study may set for this variant."""

    summary: ClassVar[str]  # one line for tables
    source: ClassVar[str]  # paper and equation
    reduces_to_prenorm_at_init: ClassVar[bool]

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

    def read(self, state: State, site: Site) -> Float[Array, "B T D"]:
        """The input of sublayer `site`, before the sublayer's own norm."""
        raise NotImplementedError

    def write(self, state: State, site: Site, y_BTD: Float[Array, "B T D"]) -> State:
        """The state after sublayer `site` has put out y; only `carry` may change."""
        raise NotImplementedError

    def end(self, state: State, segment: range) -> State:
        """Called after the last sublayer of each segment, outside of any scan."""
        return state

    def readout(self, state: State) -> Float[Array, "B T D"]:
        """What the final norm and the head see."""
        raise NotImplementedError

    @classmethod
    def extra_params(cls, cfg: ModelConfig) -> int:
        """Parameters beyond PreNorm's, in closed form."""
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
    def remat(cls, cfg: ModelConfig) -> str:
        """What backward computes again: "none", a "layer" or a "block".

        Where all depth is one segment, a block would be everything; then it is a layer.
        """
        one_segment = len(cls.segments(cfg)) == 1
        return "layer" if cfg.remat == "block" and one_segment else cfg.remat
