"""The sublayers of a Transformer: causal attention and SwiGLU, each with its own input RMSNorm.

Dimensions: B batch, T time, D d_model, N query heads, K key/value heads, H head, F d_ff.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from models.attention import attention
from models.config import ModelConfig
from models.linear import linear
from models.params import fan_in, param
from models.residuals.base import QKV
from models.sharding import constrain

STREAM = ("batch", "stream", None)  # x_BTD between sublayers


class RMSNorm(nnx.Module):
    """x / rms(x) * gain over the last axis, statistics in fp32."""

    def __init__(self, dim: int, eps: float, axis: str = "features"):
        self.gain = param(None, (dim,), 1.0, axes=(axis,), group="vector")
        self.eps = eps

    def __call__(self, x: Float[Array, "*BT D"]) -> Float[Array, "*BT D"]:
        x32 = x.astype(jnp.float32)
        rstd = jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + self.eps)
        gain = jnp.expand_dims(self.gain[...], tuple(range(x.ndim - 1)))
        return (x32 * rstd * gain).astype(x.dtype)


def rope(x_BTNH: Float[Array, "B T N H"], theta: float) -> Float[Array, "B T N H"]:
    """Rotary position embedding (arXiv 2104.09864), halves rotated, angles in fp32."""
    T, H = x_BTNH.shape[1], x_BTNH.shape[-1]
    frequency = theta ** (-jnp.arange(0, H, 2, dtype=jnp.float32) / H)
    angle_1T1h = (jnp.arange(T, dtype=jnp.float32)[:, None] * frequency[None])[None, :, None]
    cos, sin = jnp.cos(angle_1T1h), jnp.sin(angle_1T1h)
    a, b = jnp.split(x_BTNH.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x_BTNH.dtype)


class Attention(nnx.Module):
    """Causal multi-head or grouped-query self-attention with RoPE and optional QK-norm."""

    Q, KV, OUT = ("embed", "heads"), ("embed", "kv_heads"), ("heads", "embed")

    def __init__(self, cfg: ModelConfig, key: jax.Array, init_scales: dict[str, float]):
        D, N, K, H = cfg.d_model, cfg.n_heads, cfg.n_kv_heads, cfg.head_dim
        kq, kk, kv, ko = jax.random.split(key, 4)
        self.q = _matrix("q", kq, (D, N * H), self.Q, init_scales)
        self.k = _matrix("k", kk, (D, K * H), self.KV, init_scales)
        self.v = _matrix("v", kv, (D, K * H), self.KV, init_scales)
        self.out = _matrix("out", ko, (N * H, D), self.OUT, init_scales)
        if cfg.qk_norm:
            self.q_norm = RMSNorm(H, cfg.norm_eps, axis="head")
            self.k_norm = RMSNorm(H, cfg.norm_eps, axis="head")
        self.cfg = cfg

    def __call__(
        self, x: Float[Array, "B T D"] | QKV, keys_values: Callable
    ) -> tuple[Float[Array, "B T D"], Any]:
        """The output, and the third of what `keys_values` returned.

        Args:
          x: the normalised input, or one each for queries, keys and values.
          keys_values: given keys and values [B, T, K, H] before QK-norm and RoPE, returns those to
            use, and something more.
        """
        cfg = self.cfg
        if isinstance(x, QKV):
            ways = [constrain(way_BTD, "batch", "sequence", None) for way_BTD in x]
        else:
            ways = [constrain(x, "batch", "sequence", None)] * 3
        weights = ((self.q, self.Q), (self.k, self.KV), (self.v, self.KV))
        q_BTNH, k_BTKH, v_BTKH = (
            linear(way_BTD, w[...], *axes).reshape(*way_BTD.shape[:2], -1, cfg.head_dim)
            for way_BTD, (w, axes) in zip(ways, weights, strict=True)
        )
        k_BTKH, v_BTKH, more = keys_values(k_BTKH, v_BTKH)
        if cfg.qk_norm:
            q_BTNH, k_BTKH = self.q_norm(q_BTNH), self.k_norm(k_BTKH)
        q_BTNH, k_BTKH = rope(q_BTNH, cfg.rope_theta), rope(k_BTKH, cfg.rope_theta)
        o_BTNH = attention(q_BTNH, k_BTKH, v_BTKH, cfg)
        return linear(o_BTNH.reshape(*o_BTNH.shape[:2], -1), self.out[...], *self.OUT), more


class SwiGLU(nnx.Module):
    """down(silu(gate(x)) * up(x)) (arXiv 2002.05202)."""

    IN, OUT = ("embed", "mlp"), ("mlp", "embed")

    def __init__(self, cfg: ModelConfig, key: jax.Array, init_scales: dict[str, float]):
        D, F = cfg.d_model, cfg.d_ff
        kg, ku, kd = jax.random.split(key, 3)
        self.gate = _matrix("gate", kg, (D, F), self.IN, init_scales)
        self.up = _matrix("up", ku, (D, F), self.IN, init_scales)
        self.down = _matrix("down", kd, (F, D), self.OUT, init_scales)

    def __call__(self, x_BTD: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        x_BTD = constrain(x_BTD, "batch", "sequence", None)
        gate_BTF, up_BTF = (linear(x_BTD, w[...], *self.IN) for w in (self.gate, self.up))
        return linear(jax.nn.silu(gate_BTF) * up_BTF, self.down[...], *self.OUT)


class Layer(nnx.Module):
    """Two sublayers; sublayer f_l includes its own PreNorm, unless `input_norm` says otherwise.

    `init_scales` are factors on the initial weights, by name: q, k, v, out, gate, up, down.
    """

    PARTS = (("attn_norm", "attn"), ("mlp_norm", "mlp"))  # of each sublayer

    def __init__(
        self,
        cfg: ModelConfig,
        key: jax.Array,
        *,
        input_norm: bool = True,
        init_scales: dict[str, float] | None = None,
    ):
        k_attn, k_mlp = jax.random.split(key)
        scales = init_scales or {}
        self.attn_norm = RMSNorm(cfg.d_model, cfg.norm_eps) if input_norm else None
        self.attn = Attention(cfg, k_attn, scales)
        self.mlp_norm = RMSNorm(cfg.d_model, cfg.norm_eps) if input_norm else None
        self.mlp = SwiGLU(cfg, k_mlp, scales)

    def attend(
        self, x: Float[Array, "B T D"] | QKV, keys_values: Callable
    ) -> tuple[Float[Array, "B T D"], Any]:
        """f_2i: the output, and the third of what `keys_values(k, v)` returned."""
        if self.attn_norm is not None:
            normed = [self.attn_norm(way) for way in (x if isinstance(x, QKV) else [x])]
            x = QKV(*normed) if isinstance(x, QKV) else normed[0]
        y_BTD, more = self.attn(x, keys_values)
        return constrain(y_BTD, *STREAM), more

    def feed_forward(self, x_BTD: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """f_2i+1."""
        if self.mlp_norm is not None:
            x_BTD = self.mlp_norm(x_BTD)
        return constrain(self.mlp(x_BTD), *STREAM)


def _matrix(name: str, key: jax.Array, shape, axes, init_scales: dict[str, float]) -> nnx.Param:
    return param(key, shape, fan_in(init_scales.get(name, 1.0)), axes=axes, group="matrix")
