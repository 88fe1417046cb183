"""Full AttnRes, whose sources are all earlier outputs, and the most recent of them."""

from typing import ClassVar

from pydantic import Field

from kernels import mix
from models.residuals import io
from models.residuals.attnres.attention import AttnRes
from models.residuals.attnres.block import AttnResBlock, Source
from models.residuals.attnres.options import ABLATIONS, COMBINED, ReadOptions, split
from models.residuals.base import State


class AttnResFull(AttnResBlock):
    """h_l = sum_i softmax_i(w_l . RMSNorm_{g_l}(v_i)) v_i over all earlier outputs."""

    Options = ReadOptions
    summary = "softmax over depth of the embedding and every earlier output"
    equation = "h_l = Σᵢ softmaxᵢ(w_l · g_l Norm(vᵢ)) vᵢ,  i = 0 .. l-1, v₀ = embedding"
    source = "arXiv 2603.15031, section 3.1"
    notes = (
        "Where the paper is silent: the readout has a query of its own over every source, and an "
        "input query projects the normalised latest source."
    )
    examples: ClassVar = {"": {}, **ABLATIONS}

    @classmethod
    def options(cls, cfg):
        return super(AttnResBlock, cls).options(cfg)

    @classmethod
    def blocks(cls, cfg):
        return super(AttnResBlock, cls).blocks(cfg)

    @classmethod
    def segments(cls, cfg):
        return cls.groups(cfg) if cls.is_two_phase(cfg) else cls.blocks(cfg)

    @classmethod
    def groups(cls, cfg) -> list[range]:
        """The sublayers that share a phase one: G of them, where L/G + G is about the least."""
        # Phase one reads L/G groups for all G reads of each, phase two up to G outputs a read.
        group = 2 * max(1, round(cfg.n_sublayers**0.5 / 2))
        return split(cfg.n_sublayers, group)

    @classmethod
    def is_scanned(cls, cfg, segment):
        return False  # the number of sources grows with every read

    def _stop(self, site: int) -> int:
        """Where the segment of a sublayer ends."""
        return next(segment.stop for segment in self.segments(self.cfg) if site in segment)

    def _phase_two(self, state, site, query_D, seen_BTD, lse_BT):
        if state.carry is None:
            return seen_BTD
        own = self._own(state, site, query_D)
        return mix([seen_BTD, *(v for v, _ in own)], [lse_BT, *(z for _, z in own)])

    def _own(self, state, site, query_D):
        if state.carry is None or not self.is_two_phase(self.cfg):
            return super()._own(state, site, query_D)
        row = site - self._stop(site)
        return [(source.value_BTD, source.logits_RBT[row]) for source in state.carry]

    def write(self, state, site, y_BTD):
        if not self.is_two_phase(self.cfg):
            return super().write(state, site, y_BTD)
        later = slice(site + 1, self._stop(site))
        logits = self._score(y_BTD, later) if later.start < later.stop else None
        return state._replace(carry=(*(state.carry or ()), Source(y_BTD, logits)))

    def end(self, state, segment):
        if not self.is_two_phase(self.cfg):
            return super().end(state, segment)
        finished = (Source(source.value_BTD, None) for source in state.carry)
        return State(history=(*state.history, *finished), carry=None)

    @classmethod
    def io_per_token(cls, cfg):
        if cls.is_ablated(cfg):
            return super().io_per_token(cfg)
        N = len(cls.groups(cfg))  # the model's own; the paper's table has N = 8 at L = 128
        return io.total(io.full_attention(cfg.d_model, cfg.n_sublayers / N, N))

    @classmethod
    def _sums_kept(cls, cfg, remat):
        return cfg.n_sublayers  # every output


class AttnResSWA(AttnRes):
    """h_l = sum_i softmax_i(w_l . RMSNorm_{g_l}(v_i)) v_i over the embedding and recent outputs."""

    class Options(ReadOptions):
        """How many of the latest outputs a read sees, besides the embedding."""

        window: int = Field(default=8, ge=1)

    summary = "softmax over depth of the embedding and the window most recent outputs"
    equation = "h_l = Σᵢ softmaxᵢ(w_l · g_l Norm(vᵢ)) vᵢ,  i = 0 and l-W .. l-1"
    source = "arXiv 2603.15031, Table 4 (SWA, W = 1 + 8)"
    notes = (
        "Where the paper is silent: the readout sees the embedding and the last outputs too. Every "
        "read is plain JAX, without the schedules of attnres_full."
    )
    reduces_to_prenorm_at_init = False
    examples: ClassVar = {
        "": {},
        "window 3": {"window": 3},
        **{label: {"window": 3} | ABLATIONS[label] for label in COMBINED},
    }

    @classmethod
    def n_sources(cls, cfg):
        return [len(sources) for sources in cls.sources(cfg)]

    @classmethod
    def sources(cls, cfg):
        W = cls.options(cfg).window
        return [(0, *range(max(1, n - W), n)) for n in range(1, cfg.n_sublayers + 2)]

    def end(self, state, segment):
        state = super().end(state, segment)
        reads, (embedding, *outputs) = state.history
        recent = outputs[-self.options(self.cfg).window :]
        return state._replace(history=type(state.history)(reads, (embedding, *recent)))

    @classmethod
    def reduces_to_prenorm(cls, cfg):
        return cls.options(cfg).window >= cfg.n_sublayers
