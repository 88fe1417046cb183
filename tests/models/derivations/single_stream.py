"""Residual connections of one stream, from their equations."""

import numpy as np

from .norms import norm, sigmoid, softmax


def prenorm(params, x, f, cfg):
    """x_{l+1} = x_l + F_l(Norm(x_l))."""
    reads = []
    for site in range(cfg.n_sublayers):
        reads.append(x)
        x = x + f(site, x)
    return [*reads, x]


def postnorm(params, x, f, cfg):
    """x_{l+1} = Norm(x_l + F_l(x_l)) * gain_l."""
    reads = []
    for site in range(cfg.n_sublayers):
        reads.append(x)
        x = norm(x + f(site, x), cfg.norm_eps) * params["gain"][site]
    return [*reads, x]


def sandwich(params, x, f, cfg):
    """x_0 = Norm(emb) * gain; x_{l+1} = x_l + Norm(F_l(Norm(x_l))) * gain_l."""
    reads = []
    if cfg.residual.options.get("embedding_norm", True):
        x = norm(x, cfg.norm_eps) * params["embed_gain"]
    for site in range(cfg.n_sublayers):
        reads.append(x)
        x = x + norm(f(site, x), cfg.norm_eps) * params["gain"][site]
    return [*reads, x]


def deepnorm(params, x, f, cfg):
    """x_{l+1} = Norm(a x_l + F_l(x_l)) * gain_l with a = (2L)^(1/4), L layers."""
    reads = []
    a = (2 * cfg.n_layers) ** 0.25
    for site in range(cfg.n_sublayers):
        reads.append(x)
        x = norm(a * x + f(site, x), cfg.norm_eps) * params["gain"][site]
    return [*reads, x]


def keel(params, x, f, cfg):
    """x_{l+1} = Norm(alpha x_l + F_l(Norm(x_l))) * gain_l, alpha the number of sublayers."""
    reads = []
    alpha = cfg.residual.options.get("alpha")
    if alpha is None:
        alpha = cfg.n_sublayers
    for site in range(cfg.n_sublayers):
        reads.append(x)
        x = norm(alpha * x + f(site, x), cfg.norm_eps) * params["gain"][site]
    return [*reads, x]


def rezero(params, x, f, cfg):
    """x_{l+1} = x_l + alpha_l F_l(x_l)."""
    reads = []
    for site in range(cfg.n_sublayers):
        reads.append(x)
        x = x + params["alpha"][site] * f(site, x)
    return [*reads, x]


def layerscale(params, x, f, cfg):
    """x_{l+1} = x_l + diag(lambda_l) F_l(x_l)."""
    reads = []
    for site in range(cfg.n_sublayers):
        reads.append(x)
        x = x + params["scale"][site] * f(site, x)
    return [*reads, x]


def residual_scalars(params, x, f, cfg):
    """Before layer i: x <- r_i x + z_i x_0 with x_0 = Norm(emb); plain sums inside the layer."""
    reads = []
    x_0 = norm(x, cfg.norm_eps)
    if cfg.residual.options.get("init", "neutral") == "nanochat":
        x = x_0
    for layer in range(cfg.n_layers):
        x = params["keep"][layer] * x + params["embed"][layer] * x_0
        for site in (2 * layer, 2 * layer + 1):
            reads.append(x)
            x = x + f(site, x)
    return [*reads, x]


def rescaled(params, x, f, cfg):
    """x_l = l/(l+1) x_{l-1} + 1/(l+1) F_l(x_{l-1}), l = 1..S: the mean of emb and all outputs."""
    reads = []
    for site in range(cfg.n_sublayers):
        count = site + 1  # sources in the mean before this sublayer
        reads.append(x)
        x = count / (count + 1) * x + 1 / (count + 1) * f(site, x)
    return [*reads, x]


def highway(params, x, f, cfg):
    """x_{l+1} = (1 - g) x + g F(x), or x + g F(x), with g = sigma(W Norm(x) + b)."""
    reads = []
    gate = cfg.residual.options.get("gate", "scalar")
    coupled = cfg.residual.options.get("coupled", True)
    for site in range(cfg.n_sublayers):
        reads.append(x)
        u = norm(x, cfg.norm_eps)
        if gate == "scalar":
            logit = np.sum(u * params["weight"][site], axis=-1, keepdims=True)
        elif gate == "low_rank":
            logit = (u @ params["down"][site]) @ params["up"][site]
        else:
            logit = u @ params["weight"][site]
        g = sigmoid(logit + params["bias"][site])
        y = f(site, x)
        x = (1 - g) * x + g * y if coupled else x + g * y
    return [*reads, x]


def laurel(params, x, f, cfg):
    """x_{l+1} = alpha F(x_l) + g(x_l, ..., x_0): RW, LR, PA and RW + LR of the paper."""
    reads = []
    form = cfg.residual.options.get("form", "lr")
    k = cfg.residual.options.get("k", 3)
    for site in range(cfg.n_sublayers):
        reads.append(x)  # x_site: the state before this sublayer
        y = f(site, x)
        if form == "rw":
            a, b = 2 * softmax(params["weights"][site])
            x = a * y + b * x
        elif form == "lr":
            x = y + x + (x @ params["down"][site]) @ params["up"][site]
        elif form == "rw+lr":
            a, b = 2 * softmax(params["weights"][site])
            x = a * y + b * (x + (x @ params["down"][site]) @ params["up"][site])
        else:
            x = y + x
            for j in range(min(k, site + 1)):
                h = (reads[site - j] @ params["down"][site]) @ params["up"][site]
                x = x + params["gamma"][site, j] * h
    return [*reads, x]


def ddl(params, x, f, cfg):
    """X' = X + beta k (v^T - k^T X) with |k| = 1, k the direction of the sublayer's output."""
    reads = []
    d_v = cfg.residual.options.get("d_v", 1)
    D = cfg.d_model
    X = np.stack([x] * d_v, axis=-1)  # [B, T, D, d_v]

    def context(layer):
        """Causal depthwise convolution over time, then the read vector."""
        if d_v == 1:
            return X[..., 0]
        conv, read = params["conv"][layer], params["read_weight"][layer]
        mixed = np.zeros_like(X)
        for t in range(X.shape[1]):
            for i in range(4):
                if t - 3 + i >= 0:
                    mixed[:, t] += conv[i] * X[:, t - 3 + i]
        return sum(read[j] * mixed[..., j] for j in range(d_v))

    for site in range(cfg.n_sublayers):
        c = context(site // 2)
        reads.append(c)
        y = f(site, c)
        k = norm(y, 1e-5**2 / D) / np.sqrt(D)
        beta = norm(c, cfg.norm_eps) @ params["beta_weight"][site] + params["beta_bias"][site]
        beta = 2 * sigmoid(beta)  # [B, T]
        v = 4 * sigmoid(c @ params["value_weight"][site] + params["value_bias"][site])
        columns = []
        for j in range(d_v):
            along = np.sum(k * X[..., j], axis=-1)  # (k^T X)_j
            columns.append(X[..., j] + (beta * (v[..., j] - along))[..., None] * k)
        X = np.stack(columns, axis=-1)
    return [*reads, context(cfg.n_layers)]


def siamese(params, x, f, cfg):
    """O = F(X + Norm_Y(Y)); X' = Norm_X(X + O / sqrt(l + 1)); Y' = Y + O; out X + Norm(Y)."""
    reads = []
    X = Y = x
    for site in range(cfg.n_sublayers):
        h = X + norm(Y, cfg.norm_eps) * params["y_gain"][site]
        reads.append(h)
        y = f(site, h)
        X = norm(X + y / np.sqrt(site + 1), cfg.norm_eps) * params["x_gain"][site]
        Y = Y + y
    return [*reads, X + norm(Y, cfg.norm_eps) * params["y_gain"][cfg.n_sublayers]]
