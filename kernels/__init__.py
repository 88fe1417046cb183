"""Depth attention: softmax over depth of earlier outputs. Imports jax only."""

from kernels.depth_attention.api import depth_attention
from kernels.depth_attention.implementations import IMPLEMENTATIONS, best_implementation
from kernels.depth_attention.merge import merge, merge_one
from kernels.depth_attention.scored import mix, score

__all__ = [
    "IMPLEMENTATIONS",
    "best_implementation",
    "depth_attention",
    "merge",
    "merge_one",
    "mix",
    "score",
]
