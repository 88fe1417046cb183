"""Residual connections over all earlier depths, in float64 NumPy from their papers' equations.

NAME(params, x, f, cfg) gives the inputs h_0 .. h_{S-1} of all sublayers and then the readout,
each [B, T, D]; where q, k and v of attention may read different sums (dca always, mudd with 4
ways) its input is a tuple of three. A layer is an attention sublayer and then an MLP sublayer.
"""

import math

import numpy as np

from .norms import norm, sigmoid, softmax


def gelu(z):
    """z Phi(z), Phi the normal distribution."""
    return z * (1 + np.vectorize(math.erf)(z / math.sqrt(2))) / 2


def denseformer(params, x, f, cfg):
    """X_{i+1} = Block_{i+1}(Y_i), Y_i = sum_{j in J_i} alpha_ij X_j where p | i, else X_i."""
    k = cfg.residual.options.get("dilation", 1)
    p = cfg.residual.options.get("period", 1)
    alpha = list(params["alpha"])  # of i = 1 .. L with p | i, j in J_i ascending
    X, Y, inputs = [x], x, []
    for i in range(1, cfg.n_layers + 1):
        inputs.append(Y)
        a = Y + f(2 * i - 2, Y)
        inputs.append(a)
        X.append(a + f(2 * i - 1, a))  # of the raw output of a block; never Y
        if i % p:
            Y = X[i]
            continue
        Y = np.zeros_like(x)
        for j in range(i + 1):
            if (i - j) % k == 0:  # j is in J_i
                Y = Y + alpha.pop(0) * X[j]
    assert not alpha
    return [*inputs, Y]


def mudd(params, x, f, cfg):
    """X^c_i = sum_j A^c_ij X_j, A_i = GELU(RMSNorm(X_i) W1) W2 + a_i per token, c in q, k, v, r."""
    ways = cfg.residual.options.get("ways", 4)
    prepost = cfg.residual.options.get("norms", "none") == "prepost"
    eps = cfg.norm_eps
    X, inputs = [x], []
    xq = xk = xv = xr = x
    for i in range(cfg.n_layers):
        h = (xq, xk, xv) if ways == 4 else xr
        inputs.append(h)
        a = f(2 * i, h) + xr
        inputs.append(a)
        X.append(a + f(2 * i + 1, a))

        C = ways if i < cfg.n_layers - 1 else 1
        n = i + 2  # X_0 .. X_{i+1}
        A = gelu(norm(X[-1], eps) @ params["w1"][i]) @ params["w2"][i]
        A = A.reshape(*A.shape[:-1], C, n) + params["prior"][i]
        mixed = []
        for c in range(C):
            total = np.zeros_like(x)
            for j in range(n):
                source = norm(X[j], eps) * params["pre_gain"][j] if prepost else X[j]
                total = total + A[..., c, j, None] * source
            if prepost:
                total = norm(total, eps) * params["post_gain"][i][c] + X[-1]
            mixed.append(total)
        xq, xk, xv, xr = mixed if C == 4 else mixed * 4
    return [*inputs, xr]


def dca(params, x, f, cfg):
    """g = (G * (b + 1 relu(w^T G))) 1 (GRN-v3) over the embedding and the layers' deltas."""
    k = cfg.residual.options.get("k", 2)

    def sources(deltas):
        if k is None or len(deltas) <= k:
            return [x, *deltas]
        middle = sum(deltas[: len(deltas) - k])
        return [x, middle, *deltas[len(deltas) - k :]]

    def grn(G, b, w):
        assert len(b) == len(G)
        g = np.zeros_like(x)
        for j in range(len(G)):
            gate = np.maximum(G[j] @ w, 0)  # one number a token, the same in all channels
            g = g + (b[j] + gate[..., None]) * G[j]
        return g

    deltas, inputs = [], []
    for i in range(cfg.n_layers):
        G = sources(deltas)
        q, key, v = (grn(G, params["bias"][i][c], params["weight"][i][c]) for c in range(3))
        inputs.append((q, key, v))
        attention = f(2 * i, (q, key, v))
        a = q + attention
        inputs.append(a)
        deltas.append(attention + f(2 * i + 1, a))
    return [*inputs, grn(sources(deltas), params["final_bias"], params["final_weight"])]


def ancre(params, x, f, cfg):
    """H_{i+1} = Block_{i+1}(H_i) + sum_{j <= i} p_ij H_j, p_i = softmax(theta_i / tau)."""
    tau = cfg.residual.options.get("tau", 0.01)
    H, inputs, start = [x], [], 0
    for i in range(cfg.n_layers):
        inputs.append(H[i])
        a = H[i] + f(2 * i, H[i])
        inputs.append(a)
        block = a + f(2 * i + 1, a)
        theta = params["theta"][start : start + i + 1]
        start += i + 1
        p = softmax(theta / tau)
        H.append(block + sum(p[j] * H[j] for j in range(i + 1)))
    assert start == len(params["theta"])
    return [*inputs, H[-1]]


def mrla(params, x, f, cfg):
    """o_t = lambda_t * Norm(o_{t-1}) + sigmoid(q_t . k_t / sqrt(d_g)) GELU(v_t); x += gain o_t."""
    head_dim = cfg.residual.options.get("head_dim", 16)
    eps = cfg.norm_eps
    T, D = x.shape[1:]

    def over_channels(u, w):
        c = len(w)
        out = np.zeros_like(u)
        for d in range(D):
            for i in range(c):
                at = d + i - c // 2
                if 0 <= at < D:
                    out[..., d] += w[i] * u[..., at]
        return out

    def over_time(u, w):
        out = np.zeros_like(u)
        for t in range(T):
            for i in range(3):
                if t - 2 + i >= 0:
                    out[:, t] += w[i] * u[:, t - 2 + i]
        return out

    inputs, o = [], np.zeros_like(x)
    for t in range(cfg.n_layers):
        inputs.append(x)
        x = x + f(2 * t, x)
        inputs.append(x)
        x = x + f(2 * t + 1, x)

        u = norm(x, eps)
        q = over_channels(u, params["q_conv"][t])
        k = over_channels(u, params["k_conv"][t])
        v = over_time(u, params["v_conv"][t])
        new = params["decay"][t] * norm(o, eps)
        for g in range(D // head_dim):
            of = slice(g * head_dim, (g + 1) * head_dim)
            score = np.sum(q[..., of] * k[..., of], axis=-1, keepdims=True) / math.sqrt(head_dim)
            new[..., of] += sigmoid(score) * gelu(v[..., of])
        o = new
        x = x + params["out_gain"][t] * o
    return [*inputs, x]


def elmo(sources, params, n, eps):
    """h = sum_j softmax(s)_j v_j; a factor would be undone by the norm that follows."""
    start = sum(read + 1 for read in range(1, n))  # entries of the reads before
    s = softmax(params["logits"][start : start + n + 1])
    return sum(s[j] * v for j, v in enumerate(sources))


def densenet(sources, params, n, eps):
    """h = W [v_0; ...; v_n]."""
    return np.concatenate(sources, axis=-1) @ params["weight"][n - 1]


def sk(sources, params, n, eps):
    """z = relu(Norm(W sum_j v_j)); h = sum_j softmax_j(A_j z) * v_j, a softmax for each channel."""
    z = np.maximum(norm(sum(sources) @ params["squeeze"][n], eps), 0)
    logits = np.stack([z @ params["excite"][n - 1][j] for j in range(n + 1)], axis=-1)
    p = softmax(logits)
    return sum(p[..., j] * v for j, v in enumerate(sources))


def mixer(params, x, f, cfg):
    """h_l = mix_l(v_0 .. v_l): the embedding and the outputs of the sublayers before."""
    mix = {"elmo": elmo, "densenet": densenet, "sk": sk}[cfg.residual.options.get("kind", "elmo")]
    sources, inputs = [x], [x]
    for site in range(cfg.n_sublayers):
        sources.append(f(site, inputs[-1]))
        inputs.append(mix(sources, params, site + 1, cfg.norm_eps))
    return inputs
