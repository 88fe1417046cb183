"""Where the trainer has put batch and sequence, for the kernels that XLA cannot partition."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from jax.sharding import NamedSharding

_tokens: ContextVar[NamedSharding | None] = ContextVar("tokens", default=None)


@contextmanager
def tokens_sharded(sharding: NamedSharding | None) -> Iterator[None]:
    """While a model is traced: the sharding of the dimensions [B, T] of all activations."""
    token = _tokens.set(sharding)
    try:
        yield
    finally:
        _tokens.reset(token)


def token_sharding() -> NamedSharding | None:
    """What `tokens_sharded` says; None on a single device."""
    return _tokens.get()
