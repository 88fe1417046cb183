"""Which implementations there are, and the choice among them."""

import difflib
import warnings

import jax

from kernels.depth_attention import pallas_gpu, pallas_tpu, xla
from kernels.depth_attention.pallas import Pallas

BACKENDS = {  # those with a backward of their own, see `base.py`
    "xla": xla,
    "pallas_tpu": Pallas(pallas_tpu, platform="tpu"),
    "pallas_gpu": Pallas(pallas_gpu, platform="cuda"),
}
IMPLEMENTATIONS = ("reference", *BACKENDS)
_BEST = {"tpu": "pallas_tpu", "gpu": "pallas_gpu", "cuda": "pallas_gpu"}


def best_implementation(platform: str) -> str:
    """The implementation that `None` stands for on a platform ("cpu", "tpu", "gpu")."""
    return _BEST.get(platform, "xla")


def choose(values, queries, implementation: str | None) -> str:
    """The name of the implementation to use; see `depth_attention`."""
    if implementation is None or implementation == "auto":
        name = best_implementation(jax.default_backend())
        reason = BACKENDS[name].unsupported(values, queries)
        if reason is None:
            return name
        warnings.warn(f"depth_attention uses xla, not {name}: {reason}", stacklevel=3)
        return "xla"
    if implementation not in IMPLEMENTATIONS:
        near = difflib.get_close_matches(str(implementation).lower(), IMPLEMENTATIONS, n=1)
        hint = f" did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"depth_attention: no implementation is called {implementation!r};{hint} "
            f"there are {', '.join(IMPLEMENTATIONS)}, or 'auto' for the best of this platform."
        )
    if implementation in BACKENDS:
        reason = BACKENDS[implementation].unsupported(values, queries)
        if reason is not None:
            raise ValueError(f"depth_attention: {implementation} cannot take this: {reason}")
    return implementation
