"""The Transformer, its layers, and residual connections that plug in. Imports kernels and jax."""

from models.config import ModelConfig, ResidualSpec
from models.transformer import Transformer

__all__ = ["ModelConfig", "ResidualSpec", "Transformer"]
