"""Attention Residuals: each sublayer reads a softmax over depth (arXiv 2603.15031).

Sources are the embedding b_0 and the sums b_1 .. b_N of N blocks of consecutive sublayers; inside a
block, the partial sum so far is one source more. Blocks of one sublayer give Full AttnRes, whose
sources are the outputs themselves.
Where the paper is silent: a read comes before its block is closed; a block starts without any
partial sum (a zero source would take softmax mass); the first read is the embedding itself; the
readout has a query of its own over every source; keys are normalised, values and logits not scaled.

attention.py is the family as its equations say, ablations included; block.py and full.py run what
the paper proposes on quicker schedules.
"""

from models.residuals.attnres.block import AttnResBlock
from models.residuals.attnres.full import AttnResFull, AttnResSWA

__all__ = ["AttnResBlock", "AttnResFull", "AttnResSWA"]
