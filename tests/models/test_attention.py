"""Every kernel for causal attention against float64, and the choice among them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from models.attention import attention, kernel

B, T, N, H = 1, 256, 4, 128


def derivation(q, k, v):
    """Query head n uses key head n // (N / K); position t sees 0 .. t."""
    k, v = (np.repeat(x, N // x.shape[2], axis=2) for x in (k, v))
    scores = np.einsum("btnh,bsnh->bnts", q, k) / H**0.5
    scores[..., np.triu(np.ones((T, T), bool), 1)] = -np.inf
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bnts,bsnh->btnh", p / p.sum(-1, keepdims=True), v)


@pytest.mark.parametrize("n_kv_heads", [4, 2])
@pytest.mark.parametrize("name", ["xla", "splash"])
def test_a_kernel_agrees_with_the_equation(make_cfg, name, n_kv_heads):
    cfg = make_cfg(
        seq_len=T, d_model=64, n_heads=N, n_kv_heads=n_kv_heads, head_dim=H, attention=name
    )
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(B, T, n, H)) for n in (N, n_kv_heads, n_kv_heads))
    weights = rng.normal(size=(B, T, N, H))
    f32 = [jnp.asarray(x, jnp.float32) for x in (q, k, v)]

    def weighted(q, k, v):
        out = attention(q, k, v, cfg)
        return jnp.sum(out * weights.astype(np.float32)), out

    assert ("pallas_call" in str(jax.make_jaxpr(weighted)(*f32))) == (name == "splash")
    with pltpu.force_tpu_interpret_mode():
        grads, out = jax.grad(weighted, argnums=(0, 1, 2), has_aux=True)(*f32)
    np.testing.assert_allclose(out, derivation(q, k, v), atol=2e-5)
    # The gradient along a random direction, by central differences in float64.
    for i, x in enumerate((q, k, v)):
        step = rng.normal(size=x.shape)
        up, down = ([*(q, k, v)[:i], x + s * step, *(q, k, v)[i + 1 :]] for s in (1e-5, -1e-5))
        slope = np.sum(weights * (derivation(*up) - derivation(*down))) / 2e-5
        np.testing.assert_allclose(np.sum(grads[i] * step), slope, rtol=1e-4, atol=1e-3)


def test_auto_is_the_platforms_kernel(make_cfg):
    chosen = {p: make_cfg().on_platform(p).attention for p in ("cpu", "gpu", "tpu")}
    assert chosen == {"cpu": "xla", "gpu": "xla", "tpu": "splash"}
    assert make_cfg(attention="cudnn").on_platform("tpu").attention == "cudnn"


def test_splash_takes_whole_lanes_only(make_cfg):
    fits = {"seq_len": 128, "head_dim": 128, "attention": "splash"}
    assert kernel(make_cfg(**fits), positions_split=False) == "splash"
    assert kernel(make_cfg(**fits), positions_split=True) == "xla"
    for misfit in ({"seq_len": 192}, {"head_dim": 64}, {"attention": "xla"}):
        assert kernel(make_cfg(**fits | misfit), positions_split=False) == "xla"
