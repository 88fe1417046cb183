"""Layers without attention and with little arithmetic, so that a mechanism is alone with itself.

Each exists twice: in JAX, where backward keeps nothing but a sublayer's input, and in float64
NumPy, for derivations that share no code with the mechanism.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from models.config import ModelConfig
from models.depth import walk
from models.params import param
from models.residuals import find
from models.residuals.base import QKV, Residual
from models.taps import Tapped

# Compiling is most of a check's time. The numbers are those of programs that run slower.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class ToyLayers(nnx.Module):
    """All layers of a configuration, stacked; positions never see each other."""

    def __init__(self, cfg: ModelConfig, seed: int = 0):
        for name, w in _weights(cfg, seed).items():
            setattr(self, name, param(None, w.shape, lambda *_, w=w: jnp.float32(w),
                                      axes=(None,) * w.ndim, group="matrix"))  # fmt: skip
        self.normed = find(cfg.residual.name).input_norm
        self.heads = (cfg.n_kv_heads, cfg.head_dim)
        self.eps = cfg.norm_eps

    def attend(self, x, keys_values):
        """tanh(q + k v) W, where q, k, v are made of one input or of three."""
        ways = x if isinstance(x, QKV) else (x, x, x)
        f = partial(_f, self.eps if self.normed else None)
        q, k, v = (
            f(way, w[...]).reshape(*way.shape[:2], *self.heads)
            for way, w in zip(ways, (self.q, self.k, self.v), strict=True)
        )
        k, v, more = keys_values(k, v)
        inner = (q + k * v).reshape(*q.shape[:2], -1)
        return _f(None, inner, self.out[...]), more

    def feed_forward(self, x):
        """tanh(Norm(x) W)."""
        return _f(self.eps if self.normed else None, x, self.mlp[...])


def numpy_sublayers(cfg: ModelConfig, seed: int = 0) -> Callable:
    """f(site, h, route=None) -> y: the same sublayers in float64.

    h is an array [B, T, D] or a tuple of three for q, k and v; route(k, v) -> (k, v) is given and
    returns arrays [B, T, n_kv_heads, head_dim].
    """
    weights, normed = _weights(cfg, seed), find(cfg.residual.name).input_norm

    def f(x, w, norm):
        if norm:
            x = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + cfg.norm_eps)
        return np.tanh(x @ w)

    def sublayer(site, h, route=None):
        layer, kind = divmod(site, 2)
        w = {name: stack[layer] for name, stack in weights.items()}
        if kind == 1:
            return f(h, w["mlp"], normed)
        ways = h if isinstance(h, tuple) else (h, h, h)
        q, k, v = (
            f(way, w[name], normed).reshape(*way.shape[:2], cfg.n_kv_heads, cfg.head_dim)
            for name, way in zip("qkv", ways, strict=True)
        )
        if route is not None:
            k, v = route(k, v)
        return f((q + k * v).reshape(*q.shape[:2], -1), w["out"], False)

    return sublayer


def inputs_and_readout(residual: Residual, x_BTD: jax.Array) -> list:
    """What all sublayers of `residual.cfg`, which is unrolled, read, and what the head sees."""
    inputs = []

    def tap(x, y):
        inputs.append(x)
        return y

    out_BTD = walk(residual, x_BTD, Tapped(ToyLayers(residual.cfg), tap))
    return [*inputs, out_BTD]


def kept_arrays(residual: Residual, x_BTD: jax.Array) -> int:
    """Distinct arrays [B, T, D] that lie between forward and backward (see `distinct`)."""
    layers = ToyLayers(residual.cfg)
    modules, treedef = jax.tree.flatten((residual, layers))

    def run(leaves, x_BTD):
        residual, layers = treedef.unflatten(leaves)
        return _final_norm(walk(residual, x_BTD, layers))

    kept = jax.jit(lambda *args: jax.tree.leaves(jax.vjp(run, *args)[1]), compiler_options=QUICK)
    return distinct(kept(modules, x_BTD), x_BTD.shape)


def distinct(arrays, shape: tuple[int, ...]) -> int:
    """How many arrays of this shape there are: multiples of one are one, and zeros are none.

    JAX lists 2v beside v, the derivative of v^2, which XLA makes again when it needs it.
    """
    wide = [np.asarray(a, np.float64) for a in arrays if a.shape[-len(shape) :] == shape]
    rows = np.concatenate(
        [np.zeros((0, np.prod(shape))), *(a.reshape(-1, np.prod(shape)) for a in wide)]
    )
    rows = rows[np.abs(rows).max(axis=1) > 0]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) * np.sign(rows[:, :1])
    found = []
    for row in rows:
        if not any(np.abs(row - other).max() < 1e-5 for other in found):
            found.append(row)
    return len(found)


def _weights(cfg: ModelConfig, seed: int) -> dict[str, np.ndarray]:
    rng, L, D, inner = np.random.default_rng(seed), cfg.n_layers, cfg.d_model, cfg.head_dim
    inner *= cfg.n_kv_heads
    shapes = dict.fromkeys("qkv", (L, D, inner)) | {"out": (L, inner, D), "mlp": (L, D, D)}
    return {name: rng.normal(size=shape) / shape[1] ** 0.5 for name, shape in shapes.items()}


def _plain(eps, x, w):
    if eps is not None:
        x32 = x.astype(jnp.float32)
        x = x * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + eps).astype(x.dtype)
    return jnp.tanh(x @ w.astype(x.dtype))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _f(eps, x, w):
    return _plain(eps, x, w)


def _forward(eps, x, w):
    return _plain(eps, x, w), (x, w)


def _backward(eps, saved, dy):
    return jax.vjp(partial(_plain, eps), *saved)[1](dy)


_f.defvjp(_forward, _backward)


@jax.custom_vjp
def _final_norm(x):
    return x


_final_norm.defvjp(lambda x: (x, x), lambda x, dy: (dy + 0 * x,))
