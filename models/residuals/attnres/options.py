"""What a study may set for AttnRes, how it is checked, and the blocks that it gives."""

from itertools import pairwise
from typing import Literal

from pydantic import Field

from models.residuals.base import Residual

ABLATIONS = {  # of the reads, to be tried
    "sigmoid": {"weights": "sigmoid"},
    "input query": {"query": "input"},
    "no query": {"query": "none"},
    "no key norm": {"key_norm": False},
    "no key gain": {"key_gain": False},
    "two heads": {"heads": 2},
    "sigmoid, input query, two heads": {"weights": "sigmoid", "query": "input", "heads": 2},
}
COMBINED = ("no query", "sigmoid, input query, two heads")  # which have most of the code in them


class ReadOptions(Residual.Options):
    """The paper's own reads, unless an ablation says otherwise (its Table 4); ablations combine.

    weights: sigmoid: of each source alone, so that they need not sum to one.
    query: learned: one a read; input: a projection of the latest source, so one a token; none: the
      logits themselves are learned.
    key_norm, key_gain: RMSNorm of the keys, and its gain; null: both, and a gain where there is a
      norm. With query none there are no keys.
    heads: groups of channels that have weights of their own.
    """

    weights: Literal["softmax", "sigmoid"] = "softmax"
    query: Literal["learned", "input", "none"] = "learned"
    key_norm: bool | None = None
    key_gain: bool | None = None
    heads: int = Field(default=1, ge=1)

    @property
    def is_ablated(self) -> bool:
        """Whether reads are other than the paper proposes; of checked options."""
        mine = (self.weights, self.query, self.key_gain, self.heads)
        return mine != ("softmax", "learned", True, 1)


class BlockOptions(ReadOptions):
    """Eight blocks of one size, unless one of the first three says otherwise.

    n_blocks: must divide the number of sublayers.
    sublayers_per_block: the last block may be shorter (section 3.2).
    boundaries: the sublayers before which a new block starts.
    block_values: whether a source is the sum of a block's outputs or their mean, so far.
    """

    n_blocks: int | None = Field(default=None, ge=1)
    sublayers_per_block: int | None = Field(default=None, ge=1)
    boundaries: tuple[int, ...] | None = Field(default=None, strict=False)  # YAML has lists
    block_values: Literal["sum", "mean"] = "sum"


def checked_reads(options: ReadOptions, d_model: int) -> ReadOptions:
    """With `key_norm` and `key_gain` as they are meant.

    Raises:
      ValueError: options that exclude one another, or that d_model does not allow.
    """
    if d_model % options.heads:
        raise ValueError(
            f"heads {options.heads} does not divide d_model {d_model}; heads must be one of its "
            f"divisors, from 1 to {d_model}"
        )
    if options.query == "none":
        keys = options.key_norm or options.key_gain
        if keys or options.heads > 1 or options.weights != "softmax":
            raise ValueError(
                "query none has no keys, so weights must be softmax, heads 1, and key_norm and "
                "key_gain left out; query learned and query input take them"
            )
        return options.model_copy(update={"key_norm": False, "key_gain": False})
    key_norm = options.key_norm is not False
    if options.key_gain and not key_norm:
        raise ValueError(
            "key_gain true needs key_norm true; without it, key_gain must be false or left out"
        )
    key_gain = key_norm if options.key_gain is None else options.key_gain
    return options.model_copy(update={"key_norm": key_norm, "key_gain": key_gain})


def checked_blocks(options: BlockOptions, n_sublayers: int) -> BlockOptions:
    """With `n_blocks` where neither of the other two is given.

    Raises:
      ValueError: more than one is given, or what is given does not fit the depth.
    """
    named = ("n_blocks", "sublayers_per_block", "boundaries")
    given = [name for name in named if getattr(options, name) is not None]
    if len(given) > 1:
        raise ValueError(f"give {' or '.join(given)}, not {'all' if len(given) > 2 else 'both'}")
    if options.boundaries is not None:
        edges = (0, *options.boundaries, n_sublayers)
        if not options.boundaries or any(a >= b for a, b in pairwise(edges)):
            raise ValueError(
                f"boundaries {list(options.boundaries)} must be one or more sublayers from 1 to "
                f"{n_sublayers - 1}, each larger than the one before"
            )
        return options
    if options.sublayers_per_block:
        if options.sublayers_per_block > n_sublayers:
            raise ValueError(
                f"sublayers_per_block {options.sublayers_per_block} is more than the "
                f"{n_sublayers} sublayers there are"
            )
        return options
    options = options.model_copy(update={"n_blocks": options.n_blocks or 8})
    if n_sublayers % options.n_blocks:
        raise ValueError(
            f"n_blocks {options.n_blocks} does not divide the {n_sublayers} sublayers of "
            f"{n_sublayers // 2} layers (attention and MLP are one sublayer each)"
        )
    return options


def blocks_of(options: BlockOptions, n_sublayers: int) -> list[range]:
    """The sublayers of each block, of checked options."""
    if options.boundaries:
        return [range(a, b) for a, b in pairwise((0, *options.boundaries, n_sublayers))]
    return split(n_sublayers, options.sublayers_per_block or n_sublayers // options.n_blocks)


def split(n_sublayers: int, size: int) -> list[range]:
    """Ranges of one size, of which the last may be shorter."""
    return [range(start, min(start + size, n_sublayers)) for start in range(0, n_sublayers, size)]
