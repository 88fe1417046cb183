"""Attention Residuals: each sublayer reads a softmax over depth (arXiv 2603.15031).

Sources are the embedding b_0 and the sums b_1 .. b_N of N blocks of consecutive sublayers; inside a
block, the partial sum so far is one source more. Blocks of one sublayer give Full AttnRes.
Where the paper is silent: a read comes before its block is closed; a block starts without any
partial sum (a zero source would take softmax mass); the first read is the embedding itself; the
readout has a query of its own over every source; keys are normalised, values and logits not scaled.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field

from kernels import mix, score
from models.params import param
from models.residuals.base import Residual, Site, State, is_scanned


@partial(
    jax.tree_util.register_dataclass, data_fields=["value_BTD", "logits_QBT"], meta_fields=["first"]
)
@dataclass(frozen=True)
class Source:
    """A finished source, scored against every read that can still come."""

    value_BTD: Float[Array, "B T D"]
    logits_QBT: Float[Array, "Q B T"]
    first: int  # the read that row 0 of the logits belongs to

    def logit(self, site: Site) -> Float[Array, "B T"]:
        """The logit of this source at one read."""
        row = site - self.first
        if isinstance(row, int):
            return self.logits_QBT[row]
        # Read 0 has no row: in a scan it takes row 0, whose weight is one among one source.
        return jax.lax.dynamic_index_in_dim(self.logits_QBT, jnp.maximum(row, 0), keepdims=False)


class AttnResBlock(Residual):
    """h_l = sum_i softmax_i(w_l . RMSNorm_{g_l}(v_i)) v_i over block sums and the partial sum."""

    class Options(Residual.Options):
        """n_blocks, about eight in the paper, must divide the number of sublayers."""

        n_blocks: int = Field(default=8, ge=1)

    summary = "softmax over depth of the embedding and n_blocks block sums"
    source = "arXiv 2603.15031, section 3.2"
    reduces_to_prenorm_at_init = True

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        # Row l is the read of sublayer l, the last row the readout; row 0 stays unused, since the
        # first read has one source. Queries must start at zero (section 4.1).
        shape, axes = (cfg.n_sublayers + 1, cfg.d_model), (None, "embed")
        self.query = param(None, shape, 0.0, axes=axes, group="vector")
        self.gain = param(None, shape, 1.0, axes=axes, group="vector")

    @classmethod
    def block_size(cls, cfg) -> int:
        """Sublayers in a block, S."""
        return cfg.n_sublayers // cls.options(cfg).n_blocks

    @classmethod
    def options(cls, cfg):
        options = super().options(cfg)
        if cfg.n_sublayers % options.n_blocks:
            raise ValueError(
                f"n_blocks {options.n_blocks} does not divide the {cfg.n_sublayers} sublayers of "
                f"{cfg.n_layers} layers (attention and MLP are one sublayer each)"
            )
        return options

    @classmethod
    def segments(cls, cfg):
        S = cls.block_size(cfg)
        return [range(start, start + S) for start in range(0, cfg.n_sublayers, S)]

    @classmethod
    def n_sources(cls, cfg) -> list[int]:
        """How many sources each read has, the readout last (Eq. 6)."""
        S = cls.block_size(cfg)
        return [1 + site // S + (site % S > 0) for site in range(cfg.n_sublayers + 1)]

    def _score(self, value_BTD, reads: slice) -> Float[Array, "Q B T"]:
        return score(value_BTD, self.query[reads] * self.gain[reads], eps=self.cfg.norm_eps)

    def init(self, x_BTD):
        return State(history=(Source(x_BTD, self._score(x_BTD, slice(1, None)), 1),), carry=None)

    def begin(self, state, segment):
        if is_scanned(self.cfg, segment):  # a scan's carry cannot start as None; see read
            return state._replace(carry=jnp.zeros_like(state.history[0].value_BTD))
        return state

    def read(self, state, site):
        if isinstance(site, int) and site == 0:
            return state.history[0].value_BTD
        values = [source.value_BTD for source in state.history]
        logits = [source.logit(site) for source in state.history]
        if state.carry is not None:
            query = (self.query[site] * self.gain[site])[None]
            logit_BT = score(state.carry, query, eps=self.cfg.norm_eps)[0]
            if not isinstance(site, int):
                starts_block = site % self.block_size(self.cfg) == 0
                logit_BT = jnp.where(starts_block, -jnp.inf, logit_BT)
            values.append(state.carry)
            logits.append(logit_BT)
        return mix(values, logits)

    def write(self, state, site, y_BTD):
        return state._replace(carry=y_BTD if state.carry is None else state.carry + y_BTD)

    def end(self, state, segment):
        first = segment.stop
        source = Source(state.carry, self._score(state.carry, slice(first, None)), first)
        return State(history=(*state.history, source), carry=None)

    def readout(self, state):
        return self.read(state, self.cfg.n_sublayers)

    @classmethod
    def extra_params(cls, cfg):
        return 2 * (cfg.n_sublayers + 1) * cfg.d_model

    @classmethod
    def flops_per_token(cls, cfg):
        D, S, n_reads = cfg.d_model, cls.block_size(cfg), cfg.n_sublayers + 1
        # A source costs 2D for its RMS statistic and 2D for each read it is scored against.
        firsts = [1, *range(S, n_reads, S)]
        finished = sum(2 * D + 2 * D * (n_reads - first) for first in firsts)
        partial = (n_reads - len(firsts)) * 4 * D
        mixing = sum(D * (2 * n - 1) for n in cls.n_sources(cfg) if n > 1)
        return finished + partial + mixing


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
