"""Models small enough that hundreds of them fit in a minute."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from models import ModelConfig, ResidualSpec, Transformer


@pytest.fixture
def make_cfg():
    """cfg(name, **fields): four layers, eight sublayers."""

    def make(name: str = "prenorm", options: dict | None = None, **fields) -> ModelConfig:
        defaults = dict(
            vocab_size=17, seq_len=8, d_model=16, n_layers=4, n_heads=2, n_kv_heads=2, d_ff=24
        )
        residual = ResidualSpec(name=name, options=options or {})
        return ModelConfig(**{**defaults, **fields}, residual=residual)

    return make


@pytest.fixture
def make_model():
    """model(cfg, spread): seeded, with queries and gains drawn at random where spread > 0."""

    def make(cfg: ModelConfig, spread: float = 0.0) -> Transformer:
        model = Transformer(cfg, jax.random.key(0))
        if spread:
            residual = nnx.to_pure_dict(nnx.split(model.residual)[1])
            leaves, treedef = jax.tree.flatten(residual)
            keys = jax.random.split(jax.random.key(1), len(leaves))
            moved = [
                leaf + spread * jax.random.normal(key, leaf.shape)
                for key, leaf in zip(keys, leaves, strict=True)
            ]
            nnx.update(model.residual, treedef.unflatten(moved))
        return model

    return make


@pytest.fixture(scope="session")
def tokens_BT() -> jax.Array:
    """Two sequences of eight tokens."""
    return jax.random.randint(jax.random.key(2), (2, 8), 0, 17, dtype=jnp.int32)
