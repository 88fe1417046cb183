"""MUDD: queries, keys, values and stream each from a sum of all layers, weighted by the token."""

from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from models.linear import linear
from models.params import param
from models.residuals import io
from models.residuals.arithmetic import (
    added,
    gelu,
    inverse_rms,
    rms_norm,
    scaled,
    unstack,
    weighted_sum,
)
from models.residuals.base import QKV, Residual, State
from models.residuals.dense import DenseHistory


class Source(NamedTuple):
    """A layer's output, with what its norm is made of."""

    x_BTD: Float[Array, "B T D"]
    inverse_rms_BT: Float[Array, "B T"]


class MUDD(DenseHistory):
    """X^c = sum_j A^c_j X_j, A = GELU(Norm(X_i) W1_i) W2_i + prior_i, for each way c of q, k, v, r.

    Attention reads X^q, X^k, X^v and adds to X^r; the readout is X^r. At first A is one for the
    latest X_i, and zero elsewhere. With norms: X^c = Norm(sum_j A^c_j Norm(X_j)) + X_i, A = 0 at
    first.
    """

    class Options(Residual.Options):
        """ways: 4 for q, k, v and stream, 1 for the stream alone; norms: of sources and sums."""

        ways: Literal[1, 4] = 4
        norms: Literal["none", "prepost"] = "none"

    summary = "queries, keys, values and stream are token-dependent sums of all layers' outputs"
    equation = "Xᶜ = Σⱼ Aᶜⱼ Xⱼ, c = q, k, v, r;  A = GELU(Norm(Xᵢ) W₁) W₂ + a"
    source = "arXiv 2502.12170, Eq. 5-10; sizes of github.com/Caiyun-AI/MUDDFormer"
    notes = (
        "The input norms of queries, keys and values share one gain; MLPs keep their width. With "
        "norms every way is normalised, as Eq. 10 says, and not the stream's alone as in the code."
    )
    reduces_to_prenorm_at_init = True
    examples: ClassVar = {
        "": {},
        "one way": {"ways": 1},
        "norms": {"norms": "prepost"},
        "one way, norms": {"ways": 1, "norms": "prepost"},
    }

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        D, vector = cfg.d_model, {"group": "vector"}
        normal = jax.nn.initializers.normal(D**-0.5)
        self.normed = self.options(cfg).norms == "prepost"
        shapes = self.shapes(cfg)

        def latest(_, shape, dtype):
            return jnp.zeros(shape, dtype) if self.normed else jnp.zeros(shape).at[:, -1].set(1)

        def each(make):
            return nnx.List([make(*shape) for shape in shapes])

        keys = iter(jax.random.split(key, cfg.n_layers))
        self.w1 = each(
            lambda C, n, K: param(next(keys), (D, K), normal, axes=("embed", None), group="mixing")
        )
        self.w2 = each(
            lambda C, n, K: param(None, (K, C * n), 0.0, axes=(None, None), group="mixing")
        )
        self.prior = each(lambda C, n, K: param(None, (C, n), latest, axes=(None, None), **vector))
        if self.normed:
            axes = (None, "features")
            self.pre_gain = param(None, (cfg.n_layers + 1, D), 1.0, axes=axes, **vector)
            self.post_gain = each(lambda C, n, K: param(None, (C, D), 1e-3, axes=axes, **vector))

    @classmethod
    def shapes(cls, cfg) -> list[tuple[int, int, int]]:
        """After each layer: (ways, sources, hidden width of what makes their weights)."""
        shapes = []
        for n in range(2, cfg.n_layers + 2):
            is_last = n == cfg.n_layers + 1
            C = 1 if is_last else cls.options(cfg).ways
            wide = C * n * (4 if is_last else 1)
            shapes.append((C, n, (wide // 64 + 1) * 64))
        return shapes

    def _source(self, x_BTD) -> Source:
        return Source(x_BTD, inverse_rms(x_BTD, self.cfg.norm_eps))

    def init(self, x_BTD):
        return State(history=(self._source(x_BTD),), carry=None)

    def prepare(self, state, site):
        own = (state.carry,) if site % 2 else self.layer_input(state.history, site // 2)
        return state._replace(own=own)

    def layer_input(self, history, layer):
        """The ways, the stream's last."""
        if layer == 0:
            return (history[0].x_BTD,)
        # Norms of sums would have backward keep two arrays more for each way, and the gains one.
        ways = jax.checkpoint(self._ways, static_argnums=1) if self.normed else self._ways
        return ways(history, layer - 1)

    def _ways(self, history, i: int) -> tuple[Float[Array, "B T D"], ...]:
        x_BTD, inverse_rms_BT = history[-1]
        # The norm is one number a token, so that it can follow the product.
        z_BTK = linear(x_BTD.astype(jnp.float32), self.w1[i][...], "embed", None)
        hidden_BTK = gelu(z_BTK * inverse_rms_BT[..., None])
        weights_BTm = linear(hidden_BTK, self.w2[i][...], None, None)
        weights = unstack(weights_BTm + self.prior[i][...].reshape(1, 1, -1), axis=-1)
        n, values = len(history), [source.x_BTD for source in history]
        by_way = [weights[start : start + n] for start in range(0, len(weights), n)]
        if not self.normed:
            return tuple(weighted_sum(weights, values) for weights in by_way)
        values = [scaled(gain_D, x) for gain_D, x in zip(self.pre_gain[:n], values, strict=True)]
        factors = [source.inverse_rms_BT for source in history]
        ways = []
        for weights, gain_D in zip(by_way, self.post_gain[i][...], strict=True):
            weights = [w * factor for w, factor in zip(weights, factors, strict=True)]
            normed_BTD = rms_norm(weighted_sum(weights, values), self.cfg.norm_eps, gain_D)
            ways.append(added(x_BTD, normed_BTD))
        return tuple(ways)

    def read(self, state, site):
        return QKV(*state.own[:3]) if len(state.own) == 4 else state.own[0]

    def write(self, state, site, y_BTD):
        return state._replace(carry=state.own[-1] + y_BTD)

    def end(self, state, segment):
        return State(history=(*state.history, self._source(state.carry)), carry=None)

    def readout(self, state):
        return super().readout(state)[-1]

    @classmethod
    def extra_params(cls, cfg):
        D, normed = cfg.d_model, cls.options(cfg).norms == "prepost"
        mixing = sum(D * K + K * C * n + C * n for C, n, K in cls.shapes(cfg))
        gains = D * (cfg.n_layers + 1 + sum(C for C, _, _ in cls.shapes(cfg)))
        return mixing + gains * normed

    @classmethod
    def flops_per_token(cls, cfg):
        D, normed = cfg.d_model, cls.options(cfg).norms == "prepost"
        statistics = 2 * D * (cfg.n_layers + normed)  # the embedding's only where it is normed
        total = statistics
        for C, n, K in cls.shapes(cfg):
            total += 2 * D * K + 5 * K + 2 * K * C * n + D * C * (2 * n - 1)
            total += 2 * 4 * D * (C == 4)  # two input norms more than PreNorm has
            total += D * (n + 5 * C) * normed
        return total

    @classmethod
    def io_per_token(cls, cfg):
        D, normed = cfg.d_model, cls.options(cfg).norms == "prepost"
        steps = io.standard(D) * cfg.n_sublayers
        for C, n, K in cls.shapes(cfg):
            steps += [io.Step("hidden", D, K), io.Step("weights", K, C * n)]
            steps += [io.Step("mix", n * D + C * n, C * D)]
            steps += [io.Step("norms", (C + 1) * D, C * D)] * normed
        return io.total(steps) / cfg.n_sublayers

    @classmethod
    def saved_activations(cls, cfg):
        # Layers' outputs and the last sum; else what attention, after layer 0, and MLPs read.
        L, ways = cfg.n_layers, cls.options(cfg).ways
        inside = L + (3 if ways == 4 else 1) * (L - 1) if cls.remat(cfg) == "none" else 0
        return 1 + L + inside + 1
