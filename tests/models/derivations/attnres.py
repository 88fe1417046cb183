"""Attention Residuals (arXiv 2603.15031) and its ablations, in float64 NumPy from the equations.

NAME(params, x, f, cfg) gives the inputs h_0 .. h_{S-1} of all sublayers and then the readout,
each [B, T, D].
"""

import numpy as np

from .norms import norm, sigmoid, softmax


def weigh(logits, weights):
    """alpha_i = softmax_i(logit), or sigmoid(logit_i), which is not normalised."""
    return sigmoid(logits) if weights == "sigmoid" else softmax(logits)


def attend(sources, row, scalars, params, cfg):
    """h_l = sum_i alpha_{i->l} v_i, logit_i = w_l . RMSNorm(v_i), a softmax for each head."""
    options, eps = cfg.residual.options, cfg.norm_eps
    query = options.get("query", "learned")
    weights = options.get("weights", "softmax")
    key_norm = options.get("key_norm", True)
    key_gain = options.get("key_gain", True) and key_norm

    if query == "none":  # learned numbers, the same for all tokens and channels
        alpha = weigh(scalars, weights)
        return sum(alpha[i] * v for i, v in enumerate(sources))

    keys = []
    for v in sources:
        key = norm(v, eps) if key_norm else v
        keys.append(key * params["gain"][row] if key_gain else key)
    if query == "input":
        w = norm(sources[-1], eps) @ params["query_weight"][row]
    else:
        w = np.broadcast_to(params["query"][row], sources[0].shape)

    h = np.zeros_like(sources[0])
    size = h.shape[-1] // options.get("heads", 1)
    for head in range(options.get("heads", 1)):
        of = slice(head * size, (head + 1) * size)
        logits = np.stack([np.sum(w[..., of] * key[..., of], axis=-1) for key in keys], axis=-1)
        alpha = weigh(logits, weights)
        for i, v in enumerate(sources):
            h[..., of] += alpha[..., i, None] * v[..., of]
    return h


def walk(sources_of, params, x, f, cfg):
    """h_0 = v_0, then h_l over the sources that `sources_of` makes of the outputs so far."""
    outputs, inputs, start = [], [x], 0
    for row in range(1, cfg.n_sublayers + 1):
        outputs.append(f(row - 1, inputs[-1]))
        sources = sources_of(outputs)
        scalars = None
        if cfg.residual.options.get("query", "learned") == "none":
            scalars = params["logits"][start : start + len(sources)]
            start += len(sources)
        inputs.append(attend(sources, row, scalars, params, cfg))
    assert start == len(params.get("logits", []))
    return inputs


def attnres_full(params, x, f, cfg):
    """h_l = sum_{i=0}^{l-1} alpha_{i->l} v_i (section 3.1)."""
    return walk(lambda outputs: [x, *outputs], params, x, f, cfg)


def attnres_block(params, x, f, cfg):
    """Over b_0 .. b_{n-1} and the partial sum b_n^{i-1}; without that where i = 1 (Eq. 5, 6)."""
    options, S = cfg.residual.options, cfg.n_sublayers
    if options.get("boundaries") is not None:
        starts = [0, *options["boundaries"]]
    elif options.get("sublayers_per_block") is not None:
        starts = list(range(0, S, options["sublayers_per_block"]))
    else:
        starts = list(range(0, S, S // options["n_blocks"]))

    def sources_of(outputs):
        sources = [x]
        for begin, end in zip(starts, [*starts[1:], S], strict=True):
            block = outputs[begin:end]  # of the current block those that are there
            if not block:
                continue
            total = sum(block)
            if options.get("block_values", "sum") == "mean":
                total = total / len(block)
            sources.append(total)
        return sources

    return walk(sources_of, params, x, f, cfg)


def attnres_swa(params, x, f, cfg):
    """Over v_0 and the W most recent outputs (SWA in Table 4)."""
    window = cfg.residual.options.get("window", 8)
    return walk(lambda outputs: [x, *outputs[-window:]], params, x, f, cfg)
