"""PreNorm whose attention also sees earlier layers' keys or values, from the equations."""

import functools

import numpy as np


def prenorm_with(route, x, f, cfg):
    """x_{l+1} = x_l + F_l(Norm(x_l)), with k, v = route(i, k, v) in the attention of layer i."""
    reads = []
    for site in range(cfg.n_sublayers):
        reads.append(x)
        if site % 2 == 0:
            x = x + f(site, x, functools.partial(route, site // 2))
        else:
            x = x + f(site, x)
    return [*reads, x]


def value_residual(params, x, f, cfg):
    """V'_l = lambda_1 V_1 + lambda_2 V_l for layers after the first."""
    init = cfg.residual.options.get("init", 0.5)
    learned = cfg.residual.options.get("learned", True)
    values = {}

    def route(layer, k, v):
        values[layer] = v
        if layer == 0:
            return k, v
        first, own = params["weight"][layer] if learned else (init, 1 - init)
        return k, first * values[0] + own * v

    return prenorm_with(route, x, f, cfg)


def lime(params, x, f, cfg):
    """[K;V]_h = sum over layers j <= l and heads h' of W^l_{h,(j,h')} [k;v]^{j,h'}."""
    R = cfg.n_kv_heads
    keys, values = {}, {}

    def route(layer, k, v):
        keys[layer], values[layer] = k, v  # each layer's own, before routing
        if layer == 0:
            return k, v
        weight = params["route"][layer - 1]
        K, V = np.zeros_like(k), np.zeros_like(v)
        for h in range(R):
            for j in range(layer + 1):
                for other in range(R):
                    w = weight[h, j * R + other]
                    K[:, :, h] += w * keys[j][:, :, other]
                    V[:, :, h] += w * values[j][:, :, other]
        return K, V

    return prenorm_with(route, x, f, cfg)
