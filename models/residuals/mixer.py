"""Mixers of older papers, over depth: ELMo's scalars, DenseNet's matrices, SKNet's gates."""

from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from models.linear import linear
from models.params import param
from models.residuals import io
from models.residuals.arithmetic import added, inverse_rms, scaled, unstack, weighted_sum
from models.residuals.base import Residual, State
from models.residuals.dense import DenseHistory


class Mixer(DenseHistory):
    """h_l = M_l(v_0, .., v_l), v_0 the embedding, v_i the output of sublayer i - 1; readout h_S.

    elmo: M = sum_j softmax_j(logits_l) v_j. densenet: M = [v_0; ..; v_l] W_l. sk: M =
    sum_j softmax_j(E_lj z) * v_j for each channel, z = ReLU(Norm(P_l sum_j v_j)).
    """

    class Options(Residual.Options):
        """kind of the mixer."""

        kind: Literal["elmo", "densenet", "sk"] = "elmo"

    summary = "sublayers read ELMo's, DenseNet's or SKNet's mix of all earlier outputs"
    equation = "hₗ = Σⱼ softmaxⱼ(sₗ) vⱼ,  j = 0 .. l  (ELMo)"
    source = "arXiv 1802.05365 Eq. 1, 1608.06993 Eq. 2, 1903.06586 section 3.1"
    notes = (
        "Made for other ends: every read is one mixer. ELMo's factor, which the norm that follows "
        "would undo, is left out. DenseNet's outputs keep the stream's width, and its W decays "
        "like any matrix; SKNet's sum is not pooled over positions. All start as a sum or a mean."
    )
    reduces_to_prenorm_at_init = True
    examples: ClassVar = {"": {}, "densenet": {"kind": "densenet"}, "sk": {"kind": "sk"}}

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        self.kind, S, D, r = self.options(cfg).kind, cfg.n_sublayers, cfg.d_model, self.width(cfg)
        counts, vector = range(2, S + 2), {"group": "vector"}  # sources of reads 1 .. S
        if self.kind == "elmo":
            self.logits = param(None, (sum(counts),), 0.0, axes=(None,), **vector)
        elif self.kind == "densenet":
            identities, axes = lambda _, shape, dtype: _identities(shape, dtype), (None, "embed")
            self.weight = nnx.List(
                [param(None, (n * D, D), identities, axes=axes, group="matrix") for n in counts]
            )
        else:
            axes_Dr, axes_rD = (None, "embed", None), (None, None, "embed")
            one = jax.nn.initializers.truncated_normal(D**-0.5)
            self.squeeze = param(key, (S + 1, D, r), one, axes=axes_Dr, group="mixing")
            self.excite = nnx.List(
                [param(None, (n, r, D), 0.0, axes=axes_rD, group="mixing") for n in counts]
            )

    @classmethod
    def width(cls, cfg) -> int:
        """Of z."""
        return max(cfg.d_model // 16, 32)

    def init(self, x_BTD):
        return State(history=(x_BTD,), carry=())

    def prepare(self, state, site):
        return state

    def read(self, state, site):
        values = (*state.history, *state.carry)
        if site == 0:
            return values[0]
        return getattr(self, f"_{self.kind}")(values, site)

    def _elmo(self, values, read: int):
        rows = jax.lax.split(self.logits[...], range(2, self.cfg.n_sublayers + 2))
        return weighted_sum(unstack(jax.nn.softmax(rows[read - 1])), values)

    def _densenet(self, values, read: int):
        blocks = jax.lax.split(self.weight[read - 1][...], [self.cfg.d_model] * len(values))
        first, *more = (linear(v, w, None, "embed") for v, w in zip(values, blocks, strict=True))
        return added(first, *more)

    def _sk(self, values, read: int):
        # Weights are as large as the sources; backward makes them again.
        mix = jax.checkpoint(_selected, static_argnums=3)
        return mix(values, self.squeeze[read], self.excite[read - 1][...], self.cfg.norm_eps)

    def write(self, state, site, y_BTD):
        return state._replace(carry=(*state.carry, y_BTD))

    def end(self, state, segment):
        return State(history=(*state.history, *state.carry), carry=())

    def readout(self, state):
        return self.read(state, self.cfg.n_sublayers)

    @classmethod
    def idle(cls, cfg):
        reason = "the first read has one source, the embedding"
        return {"squeeze[0]": reason} if cls.options(cfg).kind == "sk" else {}

    @classmethod
    def n_sources(cls, cfg) -> int:
        """Of all reads but the first, together."""
        return sum(range(2, cfg.n_sublayers + 2))

    @classmethod
    def extra_params(cls, cfg):
        n, n_reads, D, r = cls.n_sources(cfg), cfg.n_sublayers + 1, cfg.d_model, cls.width(cfg)
        each = {"elmo": n, "densenet": n * D * D, "sk": n_reads * D * r + n * r * D}
        return each[cls.options(cfg).kind]

    @classmethod
    def flops_per_token(cls, cfg):
        n, S, D, r = cls.n_sources(cfg), cfg.n_sublayers, cfg.d_model, cls.width(cfg)
        return {
            "elmo": D * (2 * n - S),
            "densenet": D * (2 * D * n + n - S),
            "sk": D * (n - S) + S * (2 * D * r + 3 * r) + 2 * D * r * n + D * (6 * n - 3 * S),
        }[cls.options(cfg).kind]

    @classmethod
    def io_per_token(cls, cfg):
        S, D, r = cfg.n_sublayers, cfg.d_model, cls.width(cfg)
        steps = []
        for n in range(2, S + 2):
            if cls.options(cfg).kind == "sk":
                steps += [*io.mix(D, n), io.Step("squeeze", D, r), io.Step("excite", r, n * D)]
                steps += [io.Step("softmax and mix", 2 * n * D, D)]
            else:
                steps += io.mix(D, n)
        return io.total(steps) / S

    @classmethod
    def saved_activations(cls, cfg):
        # Sources, and reads but the first, which is the embedding.
        S = cfg.n_sublayers
        return 1 + S + (S if cls.remat(cfg) == "none" else 1)


def _identities(shape: tuple[int, ...], dtype) -> Array:
    """[I; ..; I]"""
    return jnp.tile(jnp.eye(shape[1], dtype=dtype), (shape[0] // shape[1], 1))


def _selected(
    values: tuple[Float[Array, "B T D"], ...],
    squeeze_Dr: Float[Array, "D r"],
    excite: Float[Array, "n r D"],
    eps: float,
) -> Float[Array, "B T D"]:
    """sk, for one read."""
    z_BTr = linear(added(*values).astype(jnp.float32), squeeze_Dr, "embed", None)
    z_BTr = jax.nn.relu(scaled(inverse_rms(z_BTr, eps), z_BTr))
    logits = [linear(z_BTr, excite_rD, None, "embed") for excite_rD in unstack(excite)]
    largest = jax.lax.stop_gradient(jax.tree.reduce(jnp.maximum, logits))
    shares = [jnp.exp(logit - largest) for logit in logits]
    total = sum(shares[1:], shares[0])
    return weighted_sum([share / total for share in shares], values)
