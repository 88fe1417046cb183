"""The sublayers of a Transformer: causal attention and SwiGLU, each with its own input RMSNorm.

Dimensions: B batch, T time, D d_model, N query heads, K key/value heads, H head, F d_ff.
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from models.attention import attention
from models.config import ModelConfig
from models.linear import linear
from models.params import fan_in, param
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

    def __init__(self, cfg: ModelConfig, key: jax.Array):
        D, N, K, H = cfg.d_model, cfg.n_heads, cfg.n_kv_heads, cfg.head_dim
        kq, kk, kv, ko = jax.random.split(key, 4)
        matrix = partial(param, init=fan_in(), group="matrix")
        self.q = matrix(kq, (D, N * H), axes=self.Q)
        self.k = matrix(kk, (D, K * H), axes=self.KV)
        self.v = matrix(kv, (D, K * H), axes=self.KV)
        self.out = matrix(ko, (N * H, D), axes=self.OUT)
        if cfg.qk_norm:
            self.q_norm = RMSNorm(H, cfg.norm_eps, axis="head")
            self.k_norm = RMSNorm(H, cfg.norm_eps, axis="head")
        self.cfg = cfg

    def __call__(self, x_BTD: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        cfg = self.cfg
        x_BTD = constrain(x_BTD, "batch", "sequence", None)
        q_BTNH, k_BTKH, v_BTKH = (
            linear(x_BTD, w[...], *axes).reshape(*x_BTD.shape[:2], -1, cfg.head_dim)
            for w, axes in ((self.q, self.Q), (self.k, self.KV), (self.v, self.KV))
        )
        if cfg.qk_norm:
            q_BTNH, k_BTKH = self.q_norm(q_BTNH), self.k_norm(k_BTKH)
        q_BTNH, k_BTKH = rope(q_BTNH, cfg.rope_theta), rope(k_BTKH, cfg.rope_theta)
        o_BTNH = attention(q_BTNH, k_BTKH, v_BTKH, cfg)
        return linear(o_BTNH.reshape(*x_BTD.shape[:2], -1), self.out[...], *self.OUT)


class SwiGLU(nnx.Module):
    """down(silu(gate(x)) * up(x)) (arXiv 2002.05202)."""

    IN, OUT = ("embed", "mlp"), ("mlp", "embed")

    def __init__(self, cfg: ModelConfig, key: jax.Array):
        D, F = cfg.d_model, cfg.d_ff
        kg, ku, kd = jax.random.split(key, 3)
        matrix = partial(param, init=fan_in(), group="matrix")
        self.gate = matrix(kg, (D, F), axes=self.IN)
        self.up = matrix(ku, (D, F), axes=self.IN)
        self.down = matrix(kd, (F, D), axes=self.OUT)

    def __call__(self, x_BTD: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        x_BTD = constrain(x_BTD, "batch", "sequence", None)
        gate_BTF, up_BTF = (linear(x_BTD, w[...], *self.IN) for w in (self.gate, self.up))
        return linear(jax.nn.silu(gate_BTF) * up_BTF, self.down[...], *self.OUT)


class Layer(nnx.Module):
    """Two sublayers; sublayer f_l includes its own PreNorm."""

    def __init__(self, cfg: ModelConfig, key: jax.Array):
        k_attn, k_mlp = jax.random.split(key)
        self.attn_norm = RMSNorm(cfg.d_model, cfg.norm_eps)
        self.attn = Attention(cfg, k_attn)
        self.mlp_norm = RMSNorm(cfg.d_model, cfg.norm_eps)
        self.mlp = SwiGLU(cfg, k_mlp)

    @property
    def sublayers(self) -> tuple:
        """f_0 and f_1 of this layer, in order."""
        return (
            lambda x: constrain(self.attn(self.attn_norm(x)), *STREAM),
            lambda x: constrain(self.mlp(self.mlp_norm(x)), *STREAM),
        )
