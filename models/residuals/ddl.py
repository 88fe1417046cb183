"""Deep Delta Learning: each output rewrites what the stream holds along its direction."""

from math import log
from typing import ClassVar

import jax
import jax.numpy as jnp
from pydantic import Field

from models.linear import linear
from models.params import fan_in, param
from models.residuals import io
from models.residuals.arithmetic import causal_convolution
from models.residuals.base import Residual, State, frozen
from models.residuals.streams import project, recomputed

KEY_EPSILON = 1e-5
TAPS = 4  # of the convolution over time


class DeepDelta(Residual):
    """X' = X + beta k (v^T - k^T X), k = y / |y| for y = f(c), X of [D, d_v].

    beta = 2 sigmoid(Norm(c) . w + b), v = 4 sigmoid(c W + b). With d_v = 1, c is the stream;
    else c = sum_j r_j conv(X)_j, a causal convolution over time of each channel, and the readout
    is the same with weights of its own.
    """

    class Options(Residual.Options):
        """d_v: columns of the stream; beta_init: 1 replaces all that lay along k, 2 reflects it."""

        d_v: int = Field(default=1, ge=1, le=16)
        beta_init: float = Field(default=1.0, gt=0, lt=2)

    family = "single stream"
    summary = "every output replaces, in part, what the stream held along its direction"
    equation = "X' = X + β k (vᵀ − kᵀX),  k = f(c)/‖f(c)‖"
    source = "arXiv 2601.00417, Eq. 2.5 and its repository"
    notes = (
        "w starts at zero, b at logit(beta_init / 2), W at random. With d_v above 1, the two "
        "sublayers of a layer share a convolution of four positions, at first the last one "
        "alone, and r, at first 1/d_v."
    )
    reduces_to_prenorm_at_init = False
    examples: ClassVar = {"": {}, "d_v 4": {"d_v": 4, "beta_init": 0.5}}

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        S, D = cfg.n_sublayers, cfg.d_model
        options = self.options(cfg)
        self.d_v = options.d_v
        logit = log(options.beta_init / (2 - options.beta_init))
        wide, vector = ("sublayer", "features", None), ("sublayer", None)
        self.beta_weight = param(None, (S, D), 0.0, axes=wide[:2], group="mixing")
        self.beta_bias = param(None, (S,), logit, axes=("sublayer",), group="vector")
        draw = jax.vmap(lambda key: fan_in()(key, (D, self.d_v), jnp.float32))
        values = lambda key, shape, dtype: draw(jax.random.split(key, S))  # noqa: E731
        self.value_weight = param(key, (S, D, self.d_v), values, axes=wide, group="mixing")
        self.value_bias = param(None, (S, self.d_v), 0.0, axes=vector, group="vector")
        if self.d_v > 1:
            rows = cfg.n_layers + 1  # the last is the readout's
            last = jnp.zeros((rows, TAPS, D, self.d_v)).at[:, -1].set(1)
            self.conv = param(
                None, last.shape, lambda *_: last,
                axes=("layer", None, "features", None), group="vector",
            )  # fmt: skip
            self.read_weight = param(
                None, (rows, self.d_v), 1 / self.d_v, axes=("layer", None), group="vector"
            )

    def init(self, x_BTD):
        return State(history=(), carry=(x_BTD,) * self.d_v)

    def prepare(self, state, site):
        return state._replace(own=self._compress(state.carry))

    def read(self, state, site):
        return state.own

    def write(self, state, site, y_BTD):
        beta_BT, v_jBT = recomputed(self._gates, state.own)
        columns = recomputed(_rewrite, state.carry, y_BTD, frozen(beta_BT), frozen(v_jBT))
        return state._replace(carry=columns)

    def readout(self, state):
        if self.d_v == 1:
            return state.carry[0]
        return recomputed(_compress, state.carry, self.conv[-1], self.read_weight[-1])

    def streams(self, state):
        return state.carry if self.d_v > 1 else ()

    def _compress(self, columns):
        """c, the input of a sublayer."""
        if self.d_v == 1:
            return columns[0]
        return recomputed(_compress, columns, self.conv[...], self.read_weight[...])

    def _gates(self, c_BTD):
        """beta [B, T] and v [d_v, B, T]."""
        bias = self.value_bias[...][:, None, None]
        z_BT = project([c_BTD], self.beta_weight[...][:, None], self.cfg.norm_eps)[0]
        u_BTj = linear(c_BTD.astype(jnp.float32), self.value_weight[...], None, None)
        v_jBT = 4 * jax.nn.sigmoid(jnp.moveaxis(u_BTj, -1, 0) + bias)
        return 2 * jax.nn.sigmoid(z_BT + self.beta_bias[...]), v_jBT

    @classmethod
    def extra_params(cls, cfg):
        d_v, D = cls.options(cfg).d_v, cfg.d_model
        gates = cfg.n_sublayers * (D + 1 + D * d_v + d_v)
        compressors = (cfg.n_layers + 1) * (TAPS * D * d_v + d_v)
        return gates + (d_v > 1) * compressors

    @classmethod
    def flops_per_token(cls, cfg):
        d_v, D = cls.options(cfg).d_v, cfg.d_model
        gates = 2 * D + 2 * D + 2 * D * d_v
        # |y|^2 and k; for each column k^T X, and two multiples added, less PreNorm's addition.
        rewrite = 3 * D + d_v * 6 * D - D
        compress = (d_v > 1) * (2 * TAPS * d_v - 1) * D
        return cfg.n_sublayers * (gates + rewrite + compress) + compress

    @classmethod
    def io_per_token(cls, cfg):
        d_v, d = cls.options(cfg).d_v, cfg.d_model
        steps = [
            io.Step("compute beta, v", d, 1 + d_v),
            io.Step("apply k", (1 + d_v) * d, 1 + d_v),
            io.Step("merge", (1 + d_v) * d + 2 + 2 * d_v, d_v * d),
        ]
        if d_v > 1:  # time steps that a convolution has read stay where they are
            steps.append(io.Step("compress", d_v * d, d))
        return io.total(steps)

    @classmethod
    def saved_activations(cls, cfg):
        # The columns, which are one at first; outputs, of which keys are made; what was compressed.
        d_v, expanded = cls.options(cfg).d_v, cls.options(cfg).d_v > 1
        if cls.remat(cfg) == "none":
            return 1 + cfg.n_sublayers * (d_v + 1 + expanded) + expanded
        return 1 + cfg.n_layers * d_v + expanded


def _rewrite(columns, y_BTD, beta_BT, v_jBT):
    """X + beta k (v^T - k^T X), column by column."""
    y32 = y_BTD.astype(jnp.float32)
    D = y32.shape[-1]
    square_BT = jnp.mean(jnp.square(y32), axis=-1) + KEY_EPSILON**2 / D
    # k = y / |y| is one number a token times y.
    length_BT = frozen(jax.lax.rsqrt(square_BT) / D**0.5)
    k_BTD = frozen(y32) * length_BT[..., None]
    written = []
    for x_BTD, v_BT in zip(columns, v_jBT, strict=True):
        x32 = x_BTD.astype(jnp.float32)
        erased_BT = beta_BT * jnp.sum(k_BTD * x32, axis=-1)
        added_BTD = y32 * (beta_BT * v_BT * length_BT)[..., None]
        new = x32 + added_BTD - erased_BT[..., None] * k_BTD
        written.append(new.astype(x_BTD.dtype))
    return tuple(written)


def _compress(columns, conv, weights):
    """sum_j weights_j conv_j(x_j), each channel convolved with the time steps up to its own.

    Args:
      conv: [taps, D, d_v], the last tap for the present.
      weights: [d_v].
    """
    kernel = conv * weights[None, None]
    parts = (causal_convolution(x_BTD, kernel[..., j]) for j, x_BTD in enumerate(columns))
    return sum(parts).astype(columns[0].dtype)
