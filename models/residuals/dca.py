"""DeepCrossAttention: queries, keys and values each from a gated sum of all layers' outputs."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float
from pydantic import Field

from models.linear import linear
from models.params import param
from models.residuals import io
from models.residuals.arithmetic import unstack, weighted_sum
from models.residuals.base import QKV, Residual, State
from models.residuals.dense import DenseHistory


class Sources(NamedTuple):
    """What sums are made of: the embedding, and what the layers added to their inputs."""

    embedding_BTD: Float[Array, "B T D"]
    middle_BTD: Float[Array, "B T D"] | None = None  # sum of all but the latest
    latest: tuple[Float[Array, "B T D"], ...] = ()

    @property
    def all(self) -> list[Float[Array, "B T D"]]:
        """In the order of depth."""
        middle = [] if self.middle_BTD is None else [self.middle_BTD]
        return [self.embedding_BTD, *middle, *self.latest]


class DeepCrossAttention(DenseHistory):
    """GRN(G) = sum_j (b_j + ReLU(w . G_j)) * G_j over the embedding and the layers' outputs G_j.

    Three of them make the inputs q, k, v of attention. The stream inside of a layer starts from
    q; G_{i+1} is what attention and MLP add to it. A further one is the readout.
    """

    class Options(Residual.Options):
        """k: layers whose outputs are sources of their own, the earlier ones' sum being one more.

        null: all of them. By default 2, or 1 where there is one layer.
        """

        k: int | None = Field(default=2, ge=1)

    summary = "queries, keys and values are gated sums of all layers' outputs"
    equation = "q, k, v = Σⱼ (bⱼ + ReLU(w·Gⱼ)) ⊙ Gⱼ,  G₀ = embedding"
    source = "arXiv 2502.06785, Eq. 3 (GRN-v3) and section 3.2"
    notes = (
        "w starts small and random, since from zero ReLU has no gradient. The MLP reads q plus "
        "attention's output, and a GRN of its own is the readout, which the paper leaves open."
    )
    reduces_to_prenorm_at_init = False
    examples: ClassVar = {"": {}, "k 1": {"k": 1}, "all": {"k": None}}

    @classmethod
    def options(cls, cfg):
        options, L = super().options(cfg), cfg.n_layers
        if "k" not in options.model_fields_set:
            return options.model_copy(update={"k": min(2, L)})
        if options.k is not None and options.k > L:
            raise ValueError(f"k {options.k} is more than the {L} layers there are; say 1 to {L}")
        return options

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        L, D, n_sources = cfg.n_layers, cfg.d_model, self.n_sources(cfg)
        k_layers, k_last = jax.random.split(key)
        small, vector = jax.nn.initializers.normal(0.01), {"group": "vector"}
        axes = (None, None, "features")
        self.bias = nnx.List(
            [param(None, (3, n, D), 1.0, axes=axes, **vector) for n in n_sources[:-1]]
        )
        self.weight = param(k_layers, (L, 3, D), small, axes=axes, group="mixing")
        self.final_bias = param(None, (n_sources[-1], D), 1.0, axes=axes[1:], **vector)
        self.final_weight = param(k_last, (D,), small, axes=("features",), group="mixing")

    @classmethod
    def n_sources(cls, cfg) -> list[int]:
        """Of each layer, and of the readout."""
        k = cls.options(cfg).k
        most = cfg.n_layers + 1 if k is None else k + 2
        return [min(i + 1, most) for i in range(cfg.n_layers + 1)]

    def init(self, x_BTD):
        return State(history=Sources(x_BTD), carry=None)

    def layer_input(self, history, layer):
        if layer == self.cfg.n_layers:
            bias, weight = self.final_bias[...][None], self.final_weight[...][None]
            return _gated_sums(history.all, bias, weight)[0]
        return QKV(*_gated_sums(history.all, self.bias[layer][...], self.weight[layer]))

    def prepare(self, state, site):
        return state._replace(own=state.carry[0]) if site % 2 else super().prepare(state, site)

    def write(self, state, site, y_BTD):
        if site % 2 == 0:
            return state._replace(carry=(state.own.q_BTD + y_BTD, y_BTD))
        return state._replace(carry=state.carry[1] + y_BTD)

    def end(self, state, segment):
        embedding_BTD, middle_BTD, latest = state.history
        latest, k = (*latest, state.carry), self.options(self.cfg).k
        if k is not None and len(latest) > k:
            oldest_BTD, *latest = latest
            middle_BTD = oldest_BTD if middle_BTD is None else middle_BTD + oldest_BTD
        return State(Sources(embedding_BTD, middle_BTD, tuple(latest)), carry=None)

    @classmethod
    def _sums_of_several(cls, cfg) -> int:
        """Sums of early layers' outputs that are no such output themselves."""
        k = cls.options(cfg).k
        return 0 if k is None else max(0, cfg.n_layers - k - 1)

    @classmethod
    def extra_params(cls, cfg):
        *n_layers, n_last = cls.n_sources(cfg)
        return cfg.d_model * (3 * sum(n_layers) + n_last + 3 * cfg.n_layers + 1)

    @classmethod
    def flops_per_token(cls, cfg):
        *n_layers, n_last = cls.n_sources(cfg)
        one = sum(6 * n - 1 for n in (*n_layers * 3, n_last))  # product, two factors, their sum
        norms = 2 * 4 * cfg.n_layers  # input norms of keys and values
        return cfg.d_model * (one + norms + cls._sums_of_several(cfg))

    @classmethod
    def io_per_token(cls, cfg):
        D, L = cfg.d_model, cfg.n_layers
        steps = io.standard(D) * (2 * L + cls._sums_of_several(cfg))
        for ways, n in zip([3] * L + [1], cls.n_sources(cfg), strict=True):
            steps += [io.Step("gates", n * D, ways * n), io.Step("mix", n * D + ways * n, ways * D)]
        return io.total(steps) / cfg.n_sublayers

    @classmethod
    def saved_activations(cls, cfg):
        # Embedding, layers' outputs, sums of them, readout; what attention and MLPs read.
        L = cfg.n_layers
        inside = 4 * L if cls.remat(cfg) == "none" else 0
        return 1 + L + cls._sums_of_several(cfg) + inside + 1


def _gated_sums(
    sources: list[Float[Array, "B T D"]],
    bias: Float[Array, "ways n D"],
    weight: Float[Array, "ways D"],
) -> list[Float[Array, "B T D"]]:
    """GRN(sources) for each way."""
    gates = [
        unstack(jax.nn.relu(linear(x.astype(jnp.float32), weight.T, None, None)), axis=-1)
        for x in sources
    ]
    # Bias and gate multiply a source each on its own: backward would keep their sum, [B, T, D].
    return [
        weighted_sum([*unstack(bias[way]), *(gate[way] for gate in gates)], sources * 2)
        for way in range(len(weight))
    ]
