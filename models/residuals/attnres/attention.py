"""What all of the family share: parameters, costs, and reads as their equations say."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from models.params import param
from models.residuals.arithmetic import unstack
from models.residuals.attnres.depth_read import (
    QUERY_AXES,
    ReadParams,
    depth_read,
    taken_apart,
)
from models.residuals.attnres.options import ReadOptions, checked_reads, split
from models.residuals.base import Residual, State
from models.residuals.reading import Reading


class History(NamedTuple):
    """All reads' parameters, and the sources that are finished."""

    reads: tuple[ReadParams | None, ...]
    sources: tuple[Float[Array, "B T D"], ...]


class AttnRes(Residual):
    """h_l = sum_i alpha_i v_i over the embedding and sums of blocks of outputs; read one by one."""

    Options = ReadOptions
    family = "attention over depth"
    reduces_to_prenorm_at_init = True

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        # Row l is the read of sublayer l, the last row the readout; row 0 stays unused, since the
        # first read has one source. Queries must start at zero (section 4.1).
        query, n_reads, D = self.options(cfg).query, cfg.n_sublayers + 1, cfg.d_model
        vectors = {"axes": (None, "features"), "group": "vector"}
        if query == "none":
            shape = (sum(self.n_sources(cfg)[1:]),)
            self.logits = param(None, shape, 0.0, axes=(None,), group="vector")
        elif query == "input":
            shape, axes = (n_reads, D, D), (None, *QUERY_AXES)
            self.query_weight = param(None, shape, 0.0, axes=axes, group="mixing")
        else:
            self.query = param(None, (n_reads, D), 0.0, **vectors)
        if self.options(cfg).key_gain:
            self.gain = param(None, (n_reads, D), 1.0, **vectors)

    @classmethod
    def options(cls, cfg):
        return checked_reads(super().options(cfg), cfg.d_model)

    @classmethod
    def blocks(cls, cfg) -> list[range]:
        """The sublayers whose outputs make one source; by default each its own."""
        return split(cfg.n_sublayers, 1)

    @classmethod
    def segments(cls, cfg):
        return cls.blocks(cfg)

    @classmethod
    def has_means(cls, cfg) -> bool:
        """Whether sources are means of several outputs, rather than sums."""
        return False

    @classmethod
    def n_sources(cls, cfg) -> list[int]:
        """How many sources each read has, the readout last (Eq. 6)."""
        blocks = cls.blocks(cfg)
        counts = [1 + n + (s > block.start) for n, block in enumerate(blocks) for s in block]
        return [*counts, 1 + len(blocks)]

    @classmethod
    def sources(cls, cfg):
        return [tuple(range(n)) for n in cls.n_sources(cfg)]

    def init(self, x_BTD):
        return State(History(self._reads(), (x_BTD,)), carry=None)

    def _reads(self) -> tuple[ReadParams | None, ...]:
        """Each read's parameters, by lax.split, whose transpose is linear in depth."""
        options, n_sources = self.options(self.cfg), self.n_sources(self.cfg)
        if options.query == "none":
            logits = jax.lax.split(self.logits[...], n_sources[1:])
            return (None, *(ReadParams(logits_n, None) for logits_n in logits))

        queries = unstack((self.query_weight if options.query == "input" else self.query)[...])
        gains = unstack(self.gain[...]) if options.key_gain else [None] * len(queries)
        return tuple(map(ReadParams, queries, gains))

    def read(self, state, site):
        if site == 0:
            return state.history.sources[0]
        values, params = self._of_read(state, site)
        return depth_read(values, params, self.options(self.cfg), self.cfg.norm_eps)

    def reading(self, state, site):
        values, params = self._of_read(state, site)
        if site == 0:  # whose query stays unused
            return Reading(values, jnp.zeros((1, 1, 1, 1)), query=params and params.query)
        return taken_apart(values, params, self.options(self.cfg), self.cfg.norm_eps)

    def _of_read(self, state, site) -> tuple[tuple[Array, ...], ReadParams | None]:
        """Its sources, the unfinished one last, and its parameters."""
        reads, values = state.history
        if state.carry is not None:
            values = (*values, self._source(state.carry, site))
        return values, reads[site]

    def write(self, state, site, y_BTD):
        return state._replace(carry=y_BTD if state.carry is None else state.carry + y_BTD)

    def end(self, state, segment):
        reads, sources = state.history
        source_BTD = self._source(state.carry, segment.stop)
        return State(History(reads, (*sources, source_BTD)), carry=None)

    def readout(self, state):
        return self.read(state, self.cfg.n_sublayers)

    def _source(self, sum_BTD, site) -> Float[Array, "B T D"]:
        """The source that the sum of a block's outputs before sublayer `site` makes."""
        if not self.has_means(self.cfg):
            return sum_BTD
        counts = [1, *(s + 1 - block.start for block in self.blocks(self.cfg) for s in block)]
        n = jnp.asarray(counts, jnp.float32)[site]
        return (sum_BTD.astype(jnp.float32) / n).astype(sum_BTD.dtype)

    @classmethod
    def reduces_to_prenorm(cls, cfg):
        # All logits are zero, so all weights equal, whatever makes weights of logits.
        return not cls.has_means(cfg)

    @classmethod
    def idle(cls, cfg):
        options, why = cls.options(cfg), "the first read has one source, the embedding"
        query = {"learned": "query[0]", "input": "query_weight[0]", "none": None}[options.query]
        return {row: why for row in (query, "gain[0]" if options.key_gain else None) if row}

    @classmethod
    def extra_params(cls, cfg):
        options, n_reads, D = cls.options(cfg), cfg.n_sublayers + 1, cfg.d_model
        if options.query == "none":
            return sum(cls.n_sources(cfg)[1:])
        return n_reads * D * ((D if options.query == "input" else 1) + options.key_gain)

    @classmethod
    def flops_per_token(cls, cfg):
        options, n_sources, D = cls.options(cfg), cls.n_sources(cfg)[1:], cfg.d_model
        mixing = D * sum(2 * n - 1 for n in n_sources)
        means = D * sum(len(block) - 1 for block in cls.blocks(cfg)) * cls.has_means(cfg)
        if options.query == "none":
            return mixing + means
        # An RMS statistic of each output's source, and of the embedding's; a logit a source.
        n_statistics = 1 + len(n_sources) if options.key_norm else 0
        queries = 0
        if options.query == "input":  # norm, projection, gain
            n_statistics = n_statistics or len(n_sources)
            queries = len(n_sources) * (D + 2 * D * D + D * options.key_gain)
        return mixing + means + queries + 2 * D * (n_statistics + sum(n_sources))

    @classmethod
    def io_per_token(cls, cfg):
        # Each read takes its sources once, as values, or twice, as keys too, and writes its result;
        # a sum that goes on is read, added to and written.
        n_sources, passes = cls.n_sources(cfg)[1:], 2 - (cls.options(cfg).query == "none")
        sums = 3 * sum(len(block) - 1 for block in cls.blocks(cfg))
        return cfg.d_model * (sum(passes * n + 1 for n in n_sources) + sums) / cfg.n_sublayers

    @classmethod
    def saved_activations(cls, cfg):
        # The embedding, what sums are kept, all reads after the first, and their input queries;
        # where a layer or a block is computed again, the last read alone, which is the readout.
        L, remat = cfg.n_sublayers, cls.remat(cfg)
        n_reads, n_sums = (L, L) if remat == "none" else (1, cls._sums_kept(cfg, remat))
        return 1 + n_sums + n_reads * (1 + (cls.options(cfg).query == "input"))

    @classmethod
    def _sums_kept(cls, cfg, remat: str) -> int:
        """Sums at the end of each block, and under remat "layer" of each layer's part of it."""
        segments = cls.segments(cfg)
        if remat == "block":
            return len(segments)
        return sum((s.stop + 1) // 2 - s.start // 2 for s in segments)
