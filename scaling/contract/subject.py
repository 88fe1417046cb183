"""A residual connection with options, in models small enough to look at from all sides."""

import functools
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from models import ModelConfig, ResidualSpec, Transformer
from models.params import axes
from models.residuals import find
from models.residuals.base import Residual
from scaling.contract.toy import QUICK

SMALL = dict(
    vocab_size=17, seq_len=8, d_model=32, n_layers=4, n_heads=2, n_kv_heads=2, d_ff=40,
    # An epsilon weighs more in a mean of n sources than in their sum.
    norm_eps=1e-12, implementation="xla",
)  # fmt: skip
STEP = 0.03  # of a parameter whose gradient is the largest of its array


class Subject:
    """What the checks share of one residual connection with these options."""

    def __init__(self, name: str, options: dict[str, Any] | None = None):
        self.name, self.given = name, options or {}
        self.kind: type[Residual] = find(name)

    def cfg(self, **fields) -> ModelConfig:
        """A model of four layers, unless told otherwise, with the options resolved."""
        residual = ResidualSpec(name=self.name, options=self.given)
        cfg = ModelConfig(**{**SMALL, **fields}, residual=residual)
        options = self.kind.options(cfg).model_dump()
        return cfg.model_copy(update={"residual": ResidualSpec(name=self.name, options=options)})

    def shallow(self, **fields) -> ModelConfig:
        """A model of two layers, if the options fit them; of four otherwise."""
        try:
            return self.cfg(n_layers=2, **fields)
        except ValueError:
            return self.cfg(**fields)

    @cached_property
    def pull(self) -> Callable:
        """pull(params, cotangent) -> logits and the gradients of all parameters, layers scanned."""
        return pull_of(self.cfg())

    def logits(self, params: dict) -> jax.Array:
        """[2, 8, 17]."""
        return logits_of(self.cfg(), params)

    @cached_property
    def params(self) -> dict:
        """At initialisation."""
        return make_params(self.cfg())(jax.random.key(0))

    @cached_property
    def trained(self) -> tuple[dict, dict]:
        """(parameters after three steps, the largest gradient that each has had).

        Steps along the gradient itself, each array's scaled: what is symmetric stays so, unlike
        under Adam, which makes whole steps of rounding errors.
        """
        params = jax.tree.map(np.asarray, self.params)
        seen = jax.tree.map(np.zeros_like, params)
        for _ in range(3):
            grads = self.pull(params, loss_cotangent(self.logits(params)))[1]
            grads = jax.tree.map(np.asarray, grads)  # NumPy compiles nothing
            seen = jax.tree.map(lambda s, g: np.maximum(s, np.abs(g)), seen, grads)
            params = jax.tree.map(_descend, params, grads)
        return jax.tree.map(jnp.asarray, params), seen

    def is_scanned(self, cfg: ModelConfig) -> bool:
        """Whether any layers of the model are."""
        return any(self.kind.is_scanned(cfg, segment) for segment in self.kind.segments(cfg))

    def rows(self, tree: dict) -> dict[str, np.ndarray]:
        """The residual connection's parameters, or the rows of those that have any, by name."""
        return self.all_rows({"residual": tree["residual"]} if "residual" in tree else {})

    def all_rows(self, tree: dict) -> dict[str, np.ndarray]:
        """The same of all parameters; the shared ones of layers are "layers.attn.q[0]"."""
        found, names = {}, axes(abstract(self.cfg()))
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            name, own = dotted(path), names
            for part in path:
                own = own[getattr(part, "key", getattr(part, "idx", None))]
            name = name.removeprefix("residual.")
            stacked = own and own[0] in (None, "sublayer", "layer") and path[0].key == "residual"
            if stacked or path[0].key == "layers":
                found |= {f"{name}[{i}]": np.asarray(row) for i, row in enumerate(leaf)}
            else:
                found[name] = np.asarray(leaf)
        return found

    def excused(self, row: str) -> bool:
        """Whether nothing is declared to depend on a parameter or a row of it."""
        return any(named(row, name) for name in self.kind.idle(self.cfg()))


def named(row: str, name: str) -> bool:
    """Whether `name` is that row, or the parameter that it is a row of."""
    return name in (row, row.split("[")[0])


def dotted(path) -> str:
    """The name of a parameter, from its path in a tree."""
    return ".".join(str(getattr(part, "key", part)) for part in path)


@lru_cache(maxsize=8)
def pull_of(cfg: ModelConfig) -> Callable:
    """pull(params, cotangent) -> (logits, gradients), compiled, for positions counted through.

    Every position has a token of its own, so that gradients of the embedding's rows are gradients
    of the positions.
    """
    graphdef, _ = nnx.split(abstract(cfg))

    def pull(params, cotangent):
        logits, back = jax.vjp(lambda p: nnx.merge(graphdef, p)(tokens_BT()), params)
        return logits, back(cotangent)[0]

    return jax.jit(pull, compiler_options=QUICK)


def logits_of(cfg: ModelConfig, params: dict) -> jax.Array:
    """[2, 8, 17]."""
    return pull_of(cfg)(params, np.zeros((2, 8, 17), np.float32))[0]


@lru_cache(maxsize=8)
def make_params(cfg: ModelConfig) -> Callable:
    """make(key) -> all parameters at initialisation, compiled."""
    return jax.jit(
        lambda key: nnx.to_pure_dict(nnx.split(Transformer(cfg, key))[1]), compiler_options=QUICK
    )


@lru_cache(maxsize=64)
def abstract(cfg: ModelConfig) -> Transformer:
    """A model whose arrays are shapes."""
    return jax.eval_shape(lambda key: Transformer(cfg, key), jax.random.key(0))


def tokens_BT() -> jax.Array:
    """Two sequences of eight tokens, all different."""
    return jnp.arange(16, dtype=jnp.int32).reshape(2, 8)


def loss_cotangent(logits_BTV: jax.Array) -> jax.Array:
    """The gradient of the mean next-token loss."""
    return (jax.nn.softmax(logits_BTV) - _targets_BTV()) / tokens_BT().size


def loss(logits_BTV: jax.Array) -> float:
    """Mean next-token loss in nats."""
    return -float(jnp.mean(jnp.sum(_targets_BTV() * jax.nn.log_softmax(logits_BTV), -1)))


def _targets_BTV() -> np.ndarray:
    return np.eye(17, dtype=np.float32)[(np.asarray(tokens_BT()) + 1) % 17]


def _descend(p, g):
    return p - np.float32(STEP) * g / (np.abs(g).max() or np.float32(1))


@functools.cache
def prenorm() -> Subject:
    """The baseline."""
    return Subject("prenorm")
