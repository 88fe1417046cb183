"""The sublayers of a Transformer: causal attention and SwiGLU, each with its own input RMSNorm.

Dimensions: B batch, T time, D d_model, N query heads, K key/value heads, H head, F d_ff.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from models.config import ModelConfig
from models.linear import linear
from models.params import fan_in, param


class RMSNorm(nnx.Module):
    """x / rms(x) * gain over the last axis, statistics in fp32."""

    def __init__(self, dim: int, eps: float, axis: str = "embed"):
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

    def __init__(self, cfg: ModelConfig, key: jax.Array):
        D, N, K, H = cfg.d_model, cfg.n_heads, cfg.n_kv_heads, cfg.head_dim
        kq, kk, kv, ko = jax.random.split(key, 4)
        axes = ("embed", "heads")
        self.q = param(kq, (D, N * H), fan_in(), axes=axes, group="matrix")
        self.k = param(kk, (D, K * H), fan_in(), axes=axes, group="matrix")
        self.v = param(kv, (D, K * H), fan_in(), axes=axes, group="matrix")
        self.out = param(ko, (N * H, D), fan_in(), axes=("heads", "embed"), group="matrix")
        if cfg.qk_norm:
            self.q_norm = RMSNorm(H, cfg.norm_eps, axis="head")
            self.k_norm = RMSNorm(H, cfg.norm_eps, axis="head")
        self.cfg = cfg

    def __call__(self, x_BTD: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        cfg = self.cfg
        q_BTNH, k_BTKH, v_BTKH = (
            linear(x_BTD, w[...]).reshape(*x_BTD.shape[:2], -1, cfg.head_dim)
            for w in (self.q, self.k, self.v)
        )
        if cfg.qk_norm:
            q_BTNH, k_BTKH = self.q_norm(q_BTNH), self.k_norm(k_BTKH)
        q_BTNH, k_BTKH = rope(q_BTNH, cfg.rope_theta), rope(k_BTKH, cfg.rope_theta)
        o_BTNH = jax.nn.dot_product_attention(q_BTNH, k_BTKH, v_BTKH, is_causal=True)
        return linear(o_BTNH.reshape(*x_BTD.shape[:2], -1), self.out[...])


class SwiGLU(nnx.Module):
    """down(silu(gate(x)) * up(x)) (arXiv 2002.05202)."""

    def __init__(self, cfg: ModelConfig, key: jax.Array):
        D, F = cfg.d_model, cfg.d_ff
        kg, ku, kd = jax.random.split(key, 3)
        self.gate = param(kg, (D, F), fan_in(), axes=("embed", "mlp"), group="matrix")
        self.up = param(ku, (D, F), fan_in(), axes=("embed", "mlp"), group="matrix")
        self.down = param(kd, (F, D), fan_in(), axes=("mlp", "embed"), group="matrix")

    def __call__(self, x_BTD: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        h_BTF = jax.nn.silu(linear(x_BTD, self.gate[...])) * linear(x_BTD, self.up[...])
        return linear(h_BTF, self.down[...])


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
            lambda x: self.attn(self.attn_norm(x)),
            lambda x: self.mlp(self.mlp_norm(x)),
        )
