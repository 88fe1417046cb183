"""Residual connections derived a second time, in float64 NumPy, from their papers' equations."""
