"""Parameters and FLOPs in closed form, each FLOP count under a named convention.

Counts are analytic because a compiler's own figure counts the body of a scan once, whatever the
depth. A multiply-add is two FLOPs; training is three forward passes (forward, and twice that for
backward). Norms, RoPE, softmax and the optimizer are left out, as is the field's habit.
"""

from typing import Literal

from models.config import ModelConfig
from models.residuals import find

Convention = Literal["train_flops", "with_head", "attention_full", "6nd"]
PFLOPS_DAY = 1e15 * 86_400

CONVENTIONS: dict[Convention, str] = {
    "train_flops": "forward + backward, causal attention, no embedding or head, residual included",
    "with_head": "train_flops plus the head's matrix product",
    "attention_full": "train_flops with attention scores counted without the causal mask",
    "6nd": "6 x non-embedding parameters x tokens",
}


def count_params(cfg: ModelConfig) -> tuple[int, int]:
    """(all parameters, parameters without the embedding and the head)."""
    D, F, H = cfg.d_model, cfg.d_ff, cfg.head_dim
    residual = find(cfg.residual.name)
    attention = 2 * D * H * (cfg.n_heads + cfg.n_kv_heads) + 2 * H * cfg.qk_norm
    layer = attention + 3 * D * F + 2 * D * residual.input_norm
    body = cfg.n_layers * layer + D * residual.final_norm + residual.extra_params(cfg)
    vocabulary = cfg.vocab_size * D * (1 if cfg.tie_embeddings else 2)
    return body + vocabulary, body


def attention_flops_per_token(cfg: ModelConfig) -> dict[str, float]:
    """Forward FLOPs per token of one attention sublayer, averaged over the positions.

    `attention_scores` are q k^T and its product with v where the causal mask lets them be,
    `attention_masked` the same where it does not.
    """
    D, T, N, H = cfg.d_model, cfg.seq_len, cfg.n_heads, cfg.head_dim
    pairs = (T + 1) / 2  # keys a causal query sees, on average
    return {
        "attention_projections": 4 * D * H * (N + cfg.n_kv_heads),
        "attention_scores": 4 * N * H * pairs,
        "attention_masked": 4 * N * H * (T - pairs),
    }


def mlp_flops_per_token(cfg: ModelConfig) -> float:
    """Forward FLOPs per token of one MLP sublayer: three matrices of [d_model, d_ff]."""
    return 6 * cfg.d_model * cfg.d_ff


def forward_flops_per_token(cfg: ModelConfig) -> dict[str, float]:
    """Forward FLOPs per token of the whole model by component."""
    attention = attention_flops_per_token(cfg)
    return {name: cfg.n_layers * flops for name, flops in attention.items()} | {
        "mlp": cfg.n_layers * mlp_flops_per_token(cfg),
        "head": 2 * cfg.d_model * cfg.vocab_size,
        "residual": find(cfg.residual.name).flops_per_token(cfg),
    }


def train_flops(cfg: ModelConfig, tokens: int, convention: Convention = "train_flops") -> float:
    """FLOPs of training on `tokens` tokens under a convention (see CONVENTIONS)."""
    if convention == "6nd":
        return 6.0 * count_params(cfg)[1] * tokens
    parts = forward_flops_per_token(cfg)
    counted = ["attention_projections", "attention_scores", "mlp", "residual"]
    counted += {"with_head": ["head"], "attention_full": ["attention_masked"]}.get(convention, [])
    return 3.0 * sum(parts[name] for name in counted) * tokens


def account(cfg: ModelConfig, tokens: int) -> dict:
    """All that a run of `tokens` tokens costs by calculation, as plain numbers for JSON.

    Traffic and saved activations are the residual connection's alone, and None where it does not
    declare them; see `models.residuals.base`.
    """
    residual, (n_params, n_body) = find(cfg.residual.name), count_params(cfg)
    flops = {name: train_flops(cfg, tokens, name) for name in CONVENTIONS}
    return {
        "params": n_params,
        "params_non_embedding": n_body,
        "params_residual": residual.extra_params(cfg),
        "tokens": tokens,
        "forward_flops_per_token": forward_flops_per_token(cfg),
        "train_flops": flops,
        "pflops_days": {name: value / PFLOPS_DAY for name, value in flops.items()},
        "io_per_token_per_sublayer": residual.io_per_token(cfg),
        "saved_activations": residual.saved_activations(cfg),
    }
