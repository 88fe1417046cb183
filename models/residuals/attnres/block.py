"""Block AttnRes, in two schedules that give the same numbers.

Kernels that read a source once for several queries make the finished sources' part of all reads of
a block at its start (phase one), to which each read adds the partial sum (phase two; Alg. 1). XLA
alone reads a source once a query in any case; there a source is scored against all later reads when
it is finished, and a read mixes all sources at once. Ablations have neither, but plain reads.
"""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernels import depth_attention, merge_one, mix, score
from models.residuals import io
from models.residuals.attnres.attention import AttnRes
from models.residuals.attnres.options import (
    ABLATIONS,
    COMBINED,
    BlockOptions,
    blocks_of,
    checked_blocks,
)
from models.residuals.base import State, frozen
from models.residuals.reading import Reading
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


class AttnResBlock(AttnRes):
    """h_l = sum_i softmax_i(w_l . RMSNorm_{g_l}(v_i)) v_i over block sums and the partial sum."""

    Options = BlockOptions
    summary = "softmax over depth of the embedding and n_blocks block sums"
    equation = "h_l = Σᵢ softmaxᵢ(w_l · g_l Norm(bᵢ)) bᵢ over block sums bᵢ, b₀ = embedding"
    source = "arXiv 2603.15031, section 3.2"
    notes = (
        "Where the paper is silent: a block starts without a partial sum, the readout has a query "
        "of its own over every source, the last block included, and an input query projects the "
        "normalised latest source."
    )
    examples: ClassVar = {
        "": {"n_blocks": 2},
        "boundaries": {"boundaries": [1, 4]},
        "means": {"n_blocks": 2, "block_values": "mean"},
        **{label: {"n_blocks": 2} | ABLATIONS[label] for label in COMBINED},
        "means, sigmoid": {"boundaries": [3], "block_values": "mean", "weights": "sigmoid"},
    }

    @classmethod
    def options(cls, cfg):
        return checked_blocks(super().options(cfg), cfg.n_sublayers)

    @classmethod
    def blocks(cls, cfg):
        return blocks_of(cls.options(cfg), cfg.n_sublayers)

    @classmethod
    def block_size(cls, cfg) -> int:
        """Sublayers in the longest block, S."""
        return max(len(block) for block in cls.blocks(cfg))

    @classmethod
    def has_means(cls, cfg):
        return cls.block_size(cfg) > 1 and cls.options(cfg).block_values == "mean"

    @classmethod
    def is_ablated(cls, cfg) -> bool:
        """Whether reads are not the paper's own, which alone have the schedules of this file."""
        return cls.options(cfg).is_ablated

    @classmethod
    def is_two_phase(cls, cfg) -> bool:
        """Whether reads are in two phases; see the head of this file."""
        xla = cfg.on_platform(jax.default_backend()).implementation == "xla"
        return not (xla or cls.is_ablated(cfg))

    @classmethod
    def is_scanned(cls, cfg, segment):
        return super().is_scanned(cfg, segment) and not cls.is_ablated(cfg)

    def _finished(self, value_BTD, first: int) -> Source:
        """The source that reads `first` and later will see."""
        if self.is_two_phase(self.cfg):
            return Source(value_BTD, None)
        return Source(value_BTD, self._score(value_BTD, slice(first, None)))

    def _score(self, value_BTD, reads: slice) -> Float[Array, "S B T"]:
        return score(value_BTD, self.query[reads] * self.gain[reads], eps=self.cfg.norm_eps)

    def init(self, x_BTD):
        if self.is_ablated(self.cfg):
            return super().init(x_BTD)
        return State(history=(self._finished(x_BTD, first=0),), carry=None)

    def begin(self, state, segment):
        if self.is_ablated(self.cfg):
            return state
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
        if self.is_ablated(self.cfg):
            return super().read(state, site)
        if isinstance(site, int) and site == 0:
            return state.history[0].value_BTD
        query_D, seen_BTD, logits = state.reads
        if self.is_two_phase(self.cfg):
            first_BTD = state.history[0].value_BTD if seen_BTD is None else seen_BTD
            return self._phase_two(state, site, query_D, first_BTD, logits[0])
        values, logits = self._scored(state, site)
        return mix(values, [frozen(z) for z in logits]) if len(values) > 1 else values[0]

    def reading(self, state, site):
        if self.is_ablated(self.cfg):
            return super().reading(state, site)
        if isinstance(site, int) and site == self.cfg.n_sublayers:
            state = self._at_readout(state)
        values, logits = self._scored(state, site)
        return Reading(values, jnp.stack(logits)[..., None], query=self.query[site])

    def _scored(self, state, site) -> tuple[list[Array], list[Array]]:
        """The sources of a read [B, T, D], and their logits [B, T]."""
        query_D, _, logits = state.reads
        values = [source.value_BTD for source in state.history]
        if self.is_two_phase(self.cfg):  # phase one has their sum alone
            logits = [score(v, query_D[None], eps=self.cfg.norm_eps)[0] for v in values]
        own = self._own(state, site, query_D)
        return [*values, *(v for v, _ in own)], [*logits, *(z for _, z in own)]

    def _own(self, state, site, query_D) -> list[tuple[Array, Array]]:
        """The sources that this segment has made so far, each with its logit."""
        return [] if state.carry is None else [self._partial(state, site, query_D)]

    def _phase_two(self, state, site, query_D, seen_BTD, lse_BT) -> Float[Array, "B T D"]:
        """Phase two: a read of the finished sources that sees those of this segment too."""
        if state.carry is None:
            return seen_BTD
        # Plain JAX: by the TPU compiler's estimate, a kernel here costs more than it saves, since
        # XLA then fuses neither the sum before it nor the norm after it.
        return merge_one(seen_BTD, lse_BT, *self._partial(state, site, query_D))

    def _partial(self, state, site, query_D) -> tuple[Array, Array]:
        """The source [B, T, D] of an unfinished block and its logit [B, T].

        The logit is -inf where the block has no output yet, since a scan's carry is zero then.
        """
        value_BTD = self._source(state.carry, site)
        logit_BT = score(value_BTD, query_D[None], eps=self.cfg.norm_eps)[0]
        if not isinstance(site, int):
            starts = jnp.asarray([block.start for block in self.blocks(self.cfg)])
            logit_BT = jnp.where(jnp.isin(site, starts), -jnp.inf, logit_BT)
        return value_BTD, logit_BT

    def end(self, state, segment):
        if self.is_ablated(self.cfg):
            return super().end(state, segment)
        value_BTD = self._source(state.carry, segment.stop)
        source = self._finished(value_BTD, first=segment.stop)
        return State(history=(*state.history, source), carry=None)

    def readout(self, state):
        return self.read(self._at_readout(state), self.cfg.n_sublayers)

    def _at_readout(self, state) -> State:
        site = self.cfg.n_sublayers
        return self.begin(state, range(site, site + 1)).row(0)

    @classmethod
    def flops_per_token(cls, cfg):
        # Phase one takes a source's statistic again in every block: no new information, so it is
        # not counted. Of the schedules here, the embedding is scored against read 0 too.
        return super().flops_per_token(cfg) + 2 * cfg.d_model * (not cls.is_ablated(cfg))

    @classmethod
    def io_per_token(cls, cfg):
        if cls.is_ablated(cfg):
            return super().io_per_token(cfg)
        N = len(cls.blocks(cfg))
        return io.total(io.block_attention(cfg.d_model, cfg.n_sublayers / N, N))

    @classmethod
    def saved_activations(cls, cfg):
        later, remat, saved = cls.segments(cfg)[1:], cls.remat(cfg), super().saved_activations(cfg)
        if remat == "block" or not cls.is_two_phase(cfg):
            return saved
        # Phase one's reads stay for the merge; the first segment has none, since its reads are of
        # the embedding alone, and one that begins a segment is what its sublayer reads.
        return saved + sum(len(s) - (remat == "none") for s in later)
