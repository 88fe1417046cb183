"""Depth attention and its gradients in float64 NumPy: what every implementation is tested against.

The gradients go back through the steps of the definition one by one: k_i = v_i / rms(v_i),
z_is = q_s . k_i, p = softmax over i, out_s = sum_i p_is v_i, normed_s = g_s out_s / rms(out_s).
"""

from typing import NamedTuple

import numpy as np


class Forward(NamedTuple):
    """Results, [S, ..., D] and [S, ...]."""

    out: np.ndarray
    lse: np.ndarray
    normed: np.ndarray


class Gradients(NamedTuple):
    """Of the sources [n, ..., D], of queries and norm_gain [S, D]."""

    values: np.ndarray
    queries: np.ndarray
    norm_gain: np.ndarray


def forward(values, queries, norm_gain, eps) -> Forward:
    """S reads of n sources; queries are pseudo-query times key gain."""
    values, queries, norm_gain = float64(values, queries, norm_gain)
    _, p = softmax(values, queries, eps)
    out = np.einsum("ns...,n...d->s...d", p, values)
    return Forward(out, lse(values, queries, eps), unit(out, eps) * beside(norm_gain, out))


def backward(values, queries, norm_gain, eps, d_out, d_lse, d_normed) -> Gradients:
    """Cotangents of all three results to gradients of all three arguments."""
    values, queries, norm_gain = float64(values, queries, norm_gain)
    d_out, d_lse, d_normed = float64(d_out, d_lse, d_normed)
    keys, p = softmax(values, queries, eps)
    out = np.einsum("ns...,n...d->s...d", p, values)
    d_norm_gain = over_tokens(d_normed * unit(out, eps))
    d_out = d_out + unit_backward(out, eps, d_normed * beside(norm_gain, out))
    d_p = np.einsum("s...d,n...d->ns...", d_out, values)
    d_z = p * (d_p - np.sum(p * d_p, axis=0)) + p * d_lse
    d_keys = np.einsum("ns...,sd->n...d", d_z, queries)
    d_queries = np.einsum("ns...,n...d->s...d", d_z, keys)
    d_values = np.einsum("ns...,s...d->n...d", p, d_out) + unit_backward(values, eps, d_keys)
    return Gradients(d_values, over_tokens(d_queries), d_norm_gain)


def logits(values, queries, eps):
    """[n, S, ...]."""
    values, queries = float64(values, queries)
    return np.einsum("sd,n...d->ns...", queries, unit(values, eps))


def lse(values, queries, eps):
    """[S, ...]."""
    return np.logaddexp.reduce(logits(values, queries, eps), axis=0)


def softmax(values, queries, eps):
    """Keys [n, ..., D] and weights [n, S, ...]."""
    z = logits(values, queries, eps)
    weights = np.exp(z - z.max(axis=0))
    return unit(values, eps), weights / weights.sum(axis=0)


def unit(x, eps):
    """x / rms(x)."""
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps)


def unit_backward(x, eps, d_y):
    """Of y = x / rms: the mean square moves with x, which takes the radial part away."""
    rms = np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps)
    return d_y / rms - x * np.mean(x * d_y, axis=-1, keepdims=True) / rms**3


def beside(gain, out):
    """[S, D] with the token dimensions of out [S, ..., D]."""
    return np.expand_dims(gain, tuple(range(1, out.ndim - 1)))


def over_tokens(x):
    """[S, ..., D] summed to [S, D]."""
    return x.sum(axis=tuple(range(1, x.ndim - 1)))


def float64(*arrays):
    return [np.asarray([np.asarray(x, np.float64) for x in a]) for a in arrays]
