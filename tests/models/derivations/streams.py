"""Residual connections of n streams, from their equations."""

import itertools

import numpy as np

from .norms import norm, sigmoid, softmax

EPS = 1e-6  # of the production form of mHC


def hc(params, x, f, cfg):
    """h = A_m^T H; H' = B^T F(h)^T + A_r^T H: stream t takes column t of A_r."""
    n = cfg.residual.options.get("n_streams", 4)
    dynamic = cfg.residual.options.get("dynamic", True)
    squash = np.tanh if cfg.residual.options.get("tanh", True) else (lambda z: z)
    H, reads = [x] * n, []
    for site in range(cfg.n_sublayers):
        A = [params["static_alpha"][site, s] + np.zeros((*x.shape[:2], n + 1)) for s in range(n)]
        B = [params["static_beta"][site, s] + np.zeros(x.shape[:2]) for s in range(n)]
        if dynamic:
            for s in range(n):
                u = norm(H[s], cfg.norm_eps)
                alpha = squash(u @ params["dynamic_alpha"][site])
                beta = squash(u @ params["dynamic_beta"][site])
                A[s] = A[s] + params["scale_alpha"][site] * alpha
                B[s] = B[s] + params["scale_beta"][site] * beta
        h = sum(A[s][..., :1] * H[s] for s in range(n))
        reads.append(h)
        y = f(site, h)
        H = [
            B[t][..., None] * y + sum(A[s][..., 1 + t, None] * H[s] for s in range(n))
            for t in range(n)
        ]
    return [*reads, sum(H)]


def sinkhorn(z, iterations):
    """M <- T_col(T_row(M)) from exp(z), the softmax being the first T_row; z is [..., j, k]."""
    comb = softmax(z) + EPS
    comb = comb / (np.sum(comb, axis=-2, keepdims=True) + EPS)
    for _ in range(iterations - 1):
        comb = comb / (np.sum(comb, axis=-1, keepdims=True) + EPS)
        comb = comb / (np.sum(comb, axis=-2, keepdims=True) + EPS)
    return comb


def head(params, streams, cfg):
    """sum_s w_s x_s with w = sigma(scale (Norm(vec(x)) phi) + base) + eps."""
    u = norm(np.concatenate(streams, axis=-1), cfg.norm_eps)
    w = sigmoid(params["head_scale"] * (u @ params["head_phi"]) + params["head_base"]) + EPS
    return sum(w[..., s, None] * streams[s] for s in range(len(streams)))


def mhc(params, x, f, cfg):
    """h = H_pre x; x' = H_res x + H_post^T F(h), H_res = comb^T doubly stochastic by Sinkhorn."""
    n = cfg.residual.options.get("n_streams", 4)
    iterations = cfg.residual.options.get("iterations", 20)
    readout = cfg.residual.options.get("readout", "sum")
    streams, reads = [x] * n, []
    for site in range(cfg.n_sublayers):
        scale, base = params["scale"][site], params["base"][site]
        z = norm(np.concatenate(streams, axis=-1), cfg.norm_eps) @ params["phi"][site]
        pre = sigmoid(scale[0] * z[..., :n] + base[:n]) + EPS
        post = 2 * sigmoid(scale[1] * z[..., n : 2 * n] + base[n : 2 * n])
        logits = scale[2] * z[..., 2 * n :] + base[2 * n :]
        comb = sinkhorn(logits.reshape(*logits.shape[:2], n, n), iterations)
        h = sum(pre[..., s, None] * streams[s] for s in range(n))
        reads.append(h)
        y = f(site, h)
        streams = [
            post[..., k, None] * y + sum(comb[..., j, k, None] * streams[j] for j in range(n))
            for k in range(n)
        ]
    if readout == "head":
        return [*reads, head(params, streams, cfg)]
    return [*reads, sum(streams) / n if readout == "mean" else sum(streams)]


def mhc_lite(params, x, f, cfg):
    """As mHC, but H_res = sum_r softmax(alpha_res x phi_r + b_r)_r P_r over all permutations."""
    n = cfg.residual.options.get("n_streams", 4)
    permutations = list(itertools.permutations(range(n)))
    streams, reads = [x] * n, []
    for site in range(cfg.n_sublayers):
        scale, base = params["scale"][site], params["base"][site]
        u = norm(np.concatenate(streams, axis=-1), cfg.norm_eps) * params["gain"][site]
        z = u @ params["phi"][site]
        pre = sigmoid(scale[0] * z[..., :n] + base[:n])
        post = 2 * sigmoid(scale[1] * z[..., n : 2 * n] + base[n : 2 * n])
        weights = softmax(scale[2] * z[..., 2 * n :] + base[2 * n :])
        H = np.zeros((*x.shape[:2], n, n))
        for r, permutation in enumerate(permutations):
            for i in range(n):
                H[..., i, permutation[i]] += weights[..., r]
        h = sum(pre[..., s, None] * streams[s] for s in range(n))
        reads.append(h)
        y = f(site, h)
        streams = [
            post[..., i, None] * y + sum(H[..., i, j, None] * streams[j] for j in range(n))
            for i in range(n)
        ]
    return [*reads, sum(streams)]


def ihc(params, x, f, cfg):
    """h = H_pre x; x' = x + H_post^T F(h): mHC whose H_res is the identity; a learned readout."""
    n = cfg.residual.options.get("n_streams", 4)
    streams, reads = [x] * n, []
    for site in range(cfg.n_sublayers):
        scale, base = params["scale"][site], params["base"][site]
        z = norm(np.concatenate(streams, axis=-1), cfg.norm_eps) @ params["phi"][site]
        pre = sigmoid(scale[0] * z[..., :n] + base[:n]) + EPS
        post = 2 * sigmoid(scale[1] * z[..., n:] + base[n:]) + EPS
        h = sum(pre[..., s, None] * streams[s] for s in range(n))
        reads.append(h)
        y = f(site, h)
        streams = [streams[s] + post[..., s, None] * y for s in range(n)]
    return [*reads, head(params, streams, cfg)]
