"""What the derivations share: RMS normalisation and the usual squashing functions, in float64."""

import numpy as np


def norm(x, eps):
    """Norm(x) = x / sqrt(mean(x^2) + eps) over the last axis, without a gain."""
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps)


def sigmoid(x):
    """sigma(x) = 1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def softmax(x):
    """exp(x_i) / sum_j exp(x_j) over the last axis."""
    p = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return p / np.sum(p, axis=-1, keepdims=True)
