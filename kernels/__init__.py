"""Depth attention: softmax over depth of earlier outputs. Imports jax only."""

from kernels.depth_attention import depth_attention, mix, score

__all__ = ["depth_attention", "mix", "score"]
