"""Depth attention: softmax over depth of earlier outputs. Imports jax only."""

from kernels.depth_attention import (
    IMPLEMENTATIONS,
    best_implementation,
    depth_attention,
    merge,
    merge_one,
    mix,
    score,
)

__all__ = [
    "IMPLEMENTATIONS",
    "best_implementation",
    "depth_attention",
    "merge",
    "merge_one",
    "mix",
    "score",
]
