"""Attention Residuals: each sublayer reads a softmax over depth (arXiv 2603.15031).

Sources are the embedding b_0 and the sums b_1 .. b_N of N blocks of consecutive sublayers; inside a
block, the partial sum so far is one source more. Blocks of one sublayer give Full AttnRes.
Where the paper is silent: a read comes before its block is closed; a block starts without any
partial sum (a zero source would take softmax mass); the first read is the embedding itself; the
readout has a query of its own over every source; keys are normalised, values and logits not scaled.

Two schedules give the same numbers. Kernels that read a source once for several queries make the
finished sources' part of all reads of a block at its start (phase one), to which each read adds
the partial sum (phase two; Alg. 1). XLA alone reads a source once a query in any case; there a
source is scored against all later reads when it is finished, and a read mixes all sources at once.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field

from kernels import depth_attention, merge_one, mix, score
from models.params import param
from models.residuals import io
from models.residuals.base import Residual, State
from models.sharding import sharding_of


class Source(NamedTuple):
    """A source, with its logits against the later reads that will need them."""

    value_BTD: Float[Array, "B T D"]
    logits_RBT: Float[Array, "R B T"] | None  # up to the last such read


class SegmentReads(NamedTuple):
    """What reads know when their segment begins, one row a read."""

    query_SD: Float[Array, "S D"]  # times the key gain
    # Phase one, the reads of all finished sources: [S, B, T, D], or S arrays, or no phase one.
    seen: Float[Array, "S B T D"] | tuple[Float[Array, "B T D"], ...] | None
    logits: tuple[Float[Array, "S B T"], ...]  # of `seen` (its lse), or of each finished source

    def row(self, index) -> "SegmentReads":
        """What one read knows."""
        seen = None if self.seen is None else self.seen[index]
        return SegmentReads(self.query_SD[index], seen, tuple(z[index] for z in self.logits))


class AttnResBlock(Residual):
    """h_l = sum_i softmax_i(w_l . RMSNorm_{g_l}(v_i)) v_i over block sums and the partial sum."""

    class Options(Residual.Options):
        """Eight blocks of one size, unless n_blocks or sublayers_per_block says otherwise.

        n_blocks must divide the number of sublayers; with sublayers_per_block the last block may
        be shorter (section 3.2).
        """

        n_blocks: int | None = Field(default=None, ge=1)
        sublayers_per_block: int | None = Field(default=None, ge=1)

    summary = "softmax over depth of the embedding and n_blocks block sums"
    source = "arXiv 2603.15031, section 3.2"
    reduces_to_prenorm_at_init = True

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        # Row l is the read of sublayer l, the last row the readout; row 0 stays unused, since the
        # first read has one source. Queries must start at zero (section 4.1).
        shape, axes = (cfg.n_sublayers + 1, cfg.d_model), (None, "features")
        self.query = param(None, shape, 0.0, axes=axes, group="vector")
        self.gain = param(None, shape, 1.0, axes=axes, group="vector")

    @classmethod
    def block_size(cls, cfg) -> int:
        """Sublayers in a block, S."""
        options = cls.options(cfg)
        return options.sublayers_per_block or cfg.n_sublayers // options.n_blocks

    @classmethod
    def options(cls, cfg):
        options = super().options(cfg)
        if options.sublayers_per_block:
            if options.n_blocks:
                raise ValueError("give n_blocks or sublayers_per_block, not both")
            if options.sublayers_per_block > cfg.n_sublayers:
                raise ValueError(
                    f"sublayers_per_block {options.sublayers_per_block} is more than the "
                    f"{cfg.n_sublayers} sublayers there are"
                )
            return options
        options = options.model_copy(update={"n_blocks": options.n_blocks or 8})
        if cfg.n_sublayers % options.n_blocks:
            raise ValueError(
                f"n_blocks {options.n_blocks} does not divide the {cfg.n_sublayers} sublayers of "
                f"{cfg.n_layers} layers (attention and MLP are one sublayer each)"
            )
        return options

    @classmethod
    def segments(cls, cfg):
        return _split(cfg.n_sublayers, cls.block_size(cfg))

    @classmethod
    def n_sources(cls, cfg) -> list[int]:
        """How many sources each read has, the readout last (Eq. 6)."""
        S = cls.block_size(cfg)
        return [1 + site // S + (site % S > 0) for site in range(cfg.n_sublayers + 1)]

    @classmethod
    def is_two_phase(cls, cfg) -> bool:
        """Whether reads are in two phases; see the head of this file."""
        return cfg.on_platform(jax.default_backend()).implementation != "xla"

    def _finished(self, value_BTD, first: int) -> Source:
        """The source that reads `first` and later will see."""
        if self.is_two_phase(self.cfg):
            return Source(value_BTD, None)
        return Source(value_BTD, self._score(value_BTD, slice(first, None)))

    def _score(self, value_BTD, reads: slice) -> Float[Array, "S B T"]:
        return score(value_BTD, self.query[reads] * self.gain[reads], eps=self.cfg.norm_eps)

    def init(self, x_BTD):
        return State(history=(self._finished(x_BTD, first=0),), carry=None)

    def begin(self, state, segment):
        values = [source.value_BTD for source in state.history]
        reads = slice(segment.start, segment.stop)
        query_SD, gain_SD = self.query[reads], self.gain[reads]
        seen = None
        if not self.is_two_phase(self.cfg):
            n_reads = self.cfg.n_sublayers + 1  # rows count from the end: the readout's is the last
            rows = slice(reads.start - n_reads, (reads.stop - n_reads) or None)
            logits = tuple(source.logits_RBT[rows] for source in state.history)
        elif len(values) == 1:
            logits = (self._score(values[0], reads),)
        else:
            seen, lse_SBT = depth_attention(
                values,
                query_SD,
                gain_SD,
                eps=self.cfg.norm_eps,
                stacked=self.is_scanned(self.cfg, segment),
                implementation=self.cfg.implementation,
                sharding=sharding_of(values[0].shape[:2], "batch", "stream"),
            )
            logits = (lse_SBT,)
        carry = state.carry
        if self.is_scanned(self.cfg, segment):  # a scan's carry cannot start as None; see read
            carry = jnp.zeros_like(values[0])
        return State(state.history, carry, SegmentReads(query_SD * gain_SD, seen, logits))

    def read(self, state, site):
        if isinstance(site, int) and site == 0:
            return state.history[0].value_BTD
        query_D, seen_BTD, logits = state.reads
        values = [source.value_BTD for source in state.history] if seen_BTD is None else [seen_BTD]
        if self.is_two_phase(self.cfg):
            return self._phase_two(state, site, query_D, values[0], logits[0])
        if state.carry is not None:
            logit_BT = self._partial_logit(state, site, query_D)
            values, logits = [*values, state.carry], [*logits, logit_BT]
        return mix(values, logits) if len(values) > 1 else values[0]

    def _phase_two(self, state, site, query_D, seen_BTD, lse_BT) -> Float[Array, "B T D"]:
        """Phase two: a read of the finished sources that sees those of this segment too."""
        if state.carry is None:
            return seen_BTD
        # Plain JAX: by the TPU compiler's estimate, a kernel here costs more than it saves, since
        # XLA then fuses neither the sum before it nor the norm after it.
        return merge_one(seen_BTD, lse_BT, state.carry, self._partial_logit(state, site, query_D))

    def _partial_logit(self, state, site, query_D) -> Float[Array, "B T"]:
        """Of the partial sum; -inf where there is none yet, since a scan's carry is zero then."""
        logit_BT = score(state.carry, query_D[None], eps=self.cfg.norm_eps)[0]
        if isinstance(site, int):
            return logit_BT
        return jnp.where(site % self.block_size(self.cfg) == 0, -jnp.inf, logit_BT)

    def write(self, state, site, y_BTD):
        return state._replace(carry=y_BTD if state.carry is None else state.carry + y_BTD)

    def end(self, state, segment):
        source = self._finished(state.carry, first=segment.stop)
        return State(history=(*state.history, source), carry=None)

    def readout(self, state):
        site = self.cfg.n_sublayers
        return self.read(self.begin(state, range(site, site + 1)).row(0), site)

    @classmethod
    def extra_params(cls, cfg):
        return 2 * (cfg.n_sublayers + 1) * cfg.d_model

    @classmethod
    def flops_per_token(cls, cfg):
        D, S, n_reads = cfg.d_model, cls.block_size(cfg), cfg.n_sublayers + 1
        # A source costs 2D for its RMS statistic and 2D for each read it is scored against. (Phase
        # one takes the statistic again in every block: no new information, so it is not counted.)
        firsts = [0, *range(S, n_reads, S)]
        finished = sum(2 * D + 2 * D * (n_reads - first) for first in firsts)
        partial = (n_reads - len(firsts)) * 4 * D
        mixing = sum(D * (2 * n - 1) for n in cls.n_sources(cfg) if n > 1)
        return finished + partial + mixing

    @classmethod
    def io_per_token(cls, cfg):
        N = len(cls.segments(cfg))
        return io.total(io.block_attention(cfg.d_model, cfg.n_sublayers / N, N))

    @classmethod
    def saved_activations(cls, cfg):
        L, later, remat = cfg.n_sublayers, cls.segments(cfg)[1:], cls.remat(cfg)
        # Phase one's reads stay for the merge; the first segment has none, since its reads are of
        # the embedding alone, and one that begins a segment is what its sublayer reads.
        ahead = sum(len(s) - (remat == "none") for s in later) if cls.is_two_phase(cfg) else 0
        if remat == "none":
            return 1 + L + L + ahead  # the embedding, all sums so far, all reads after the first
        if remat == "block":
            ahead = 0
        return 1 + cls._sums_kept(cfg, remat) + 1 + ahead  # the last is the readout

    @classmethod
    def _sums_kept(cls, cfg, remat: str) -> int:
        """Sums at the end of each block, and under remat "layer" of each layer's part of it."""
        segments = cls.segments(cfg)
        if remat == "block":
            return len(segments)
        return sum((s.stop + 1) // 2 - s.start // 2 for s in segments)


class AttnResFull(AttnResBlock):
    """h_l = sum_i softmax_i(w_l . RMSNorm_{g_l}(v_i)) v_i over all earlier outputs."""

    class Options(Residual.Options):
        """None: every sublayer's output is a source."""

    summary = "softmax over depth of the embedding and every earlier output"
    source = "arXiv 2603.15031, section 3.1"

    @classmethod
    def options(cls, cfg):
        return cls.Options(**cfg.residual.options)

    @classmethod
    def block_size(cls, cfg):
        return 1

    @classmethod
    def segments(cls, cfg):
        return cls.groups(cfg) if cls.is_two_phase(cfg) else super().segments(cfg)

    @classmethod
    def groups(cls, cfg) -> list[range]:
        """The sublayers that share a phase one: G of them, where L/G + G is about the least."""
        # Phase one reads L/G groups for all G reads of each, phase two up to G outputs a read.
        group = 2 * max(1, round(cfg.n_sublayers**0.5 / 2))
        return _split(cfg.n_sublayers, group)

    @classmethod
    def io_per_token(cls, cfg):
        N = len(cls.groups(cfg))  # the model's own; the paper's table has N = 8 at L = 128
        return io.total(io.full_attention(cfg.d_model, cfg.n_sublayers / N, N))

    @classmethod
    def _sums_kept(cls, cfg, remat):
        return cfg.n_sublayers  # every output

    @classmethod
    def is_scanned(cls, cfg, segment):
        return False  # the number of sources grows with every read

    def _stop(self, site: int) -> int:
        """Where the segment of a sublayer ends."""
        return next(segment.stop for segment in self.segments(self.cfg) if site in segment)

    def _phase_two(self, state, site, query_D, seen_BTD, lse_BT):
        if state.carry is None:
            return seen_BTD
        row = site - self._stop(site)
        values = [seen_BTD, *(source.value_BTD for source in state.carry)]
        logits = [lse_BT, *(source.logits_RBT[row] for source in state.carry)]
        return mix(values, logits)

    def write(self, state, site, y_BTD):
        later = slice(site + 1, self._stop(site))
        logits = self._score(y_BTD, later) if later.start < later.stop else None
        return state._replace(carry=(*(state.carry or ()), Source(y_BTD, logits)))

    def end(self, state, segment):
        sources = zip(state.carry, segment, strict=True)
        finished = (self._finished(source.value_BTD, first=site + 1) for source, site in sources)
        return State(history=(*state.history, *finished), carry=None)


def _split(n_sublayers: int, size: int) -> list[range]:
    return [range(start, min(start + size, n_sublayers)) for start in range(0, n_sublayers, size)]
