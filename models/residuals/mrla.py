"""MRLA: after each layer, light attention over the layers so far is added to the stream."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field

from models.params import param
from models.residuals import io
from models.residuals.arithmetic import added, causal_convolution, gelu, inverse_rms, scaled
from models.residuals.base import Residual, State

TIME = 3  # positions that a value is made of, the last its own


class MRLA(Residual):
    """After layer t: x <- x + out_gain * o_t, o_t = decay * Norm(o_{t-1}) + gate * GELU(v).

    q, k and v are convolutions of Norm(x): q and k over channels, v over positions; gate =
    sigmoid(q.k / sqrt(H)) of each head of H channels. At first o_{-1} = 0 and out_gain = 0.
    """

    class Options(Residual.Options):
        """head_dim: channels that share a gate; it must divide d_model."""

        head_dim: int = Field(default=16, ge=1)

    family = "dense history"
    summary = "a decaying sum over layers of gated values is added to the stream"
    equation = "x' = x + γ oₜ,  oₜ = λₜ Norm(oₜ₋₁) + σ(q·k/√H) GELU(v)"
    source = "arXiv 2302.03985, section 3.3 (light version)"
    notes = (
        "Made causal: q and k come from each token rather than from a pooled image, v from three "
        "positions rather than from 3 x 3 pixels. The gain on o, zero at first, is new."
    )
    reduces_to_prenorm_at_init = True
    examples: ClassVar = {"": {}, "head_dim 8": {"head_dim": 8}}

    @classmethod
    def options(cls, cfg):
        options, D = super().options(cfg), cfg.d_model
        if D % options.head_dim:
            raise ValueError(
                f"head_dim {options.head_dim} does not divide d_model {D}; it must be one of its "
                f"divisors, from 1 to {D}"
            )
        return options

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        L, D, c = cfg.n_layers, cfg.d_model, self.kernel_size(cfg)
        k_q, k_k, k_decay = jax.random.split(key, 3)
        taps = {"axes": ("layer", None), "group": "vector"}
        channels = {"axes": ("layer", "features"), "group": "vector"}
        narrow = jax.nn.initializers.truncated_normal(c**-0.5)
        self.q_conv = param(k_q, (L, c), narrow, **taps)
        self.k_conv = param(k_k, (L, c), narrow, **taps)
        self.v_conv = param(
            None, (L, TIME, D), lambda _, shape, dtype: jnp.zeros(shape, dtype).at[:, -1].set(1),
            axes=("layer", None, "features"), group="vector",
        )  # fmt: skip
        self.decay = param(k_decay, (L, D), jax.nn.initializers.normal(1.0), **channels)
        self.out_gain = param(None, (L, D), 0.0, **channels)

    @classmethod
    def kernel_size(cls, cfg) -> int:
        """Channels that one number of q or k is made of: the odd one of t and t + 1."""
        return cfg.d_model.bit_length() // 2 | 1  # t = int((log2 D + 1) / 2)

    def init(self, x_BTD):
        return State(history=(), carry=(x_BTD, jnp.zeros_like(x_BTD)))

    def read(self, state, site):
        return state.carry[0]

    def write(self, state, site, y_BTD):
        x_BTD, o_BTD = state.carry
        x_BTD = x_BTD + y_BTD
        if state.is_attention:  # o is of whole layers
            return state._replace(carry=(x_BTD, o_BTD))
        # Backward keeps what this starts from, and makes the shifted copies again.
        return state._replace(carry=jax.checkpoint(self._attend, prevent_cse=False)(x_BTD, o_BTD))

    def _attend(self, x_BTD, o_BTD):
        """The stream, and o_t."""
        eps, dtype = self.cfg.norm_eps, x_BTD.dtype
        u_BTD = scaled(inverse_rms(x_BTD, eps), x_BTD)
        past_BTD = scaled(inverse_rms(o_BTD, eps), o_BTD)
        value_BTD = gelu(causal_convolution(u_BTD, self.v_conv[...]))
        o_BTD = scaled(self.decay[...], past_BTD) + scaled(self._gate(u_BTD), value_BTD)
        return added(x_BTD, scaled(self.out_gain[...], o_BTD)), o_BTD.astype(dtype)

    def _gate(self, u_BTD):
        """sigmoid(q.k / sqrt(H)), for each channel that of its head."""
        H, (B, T, D) = self.options(self.cfg).head_dim, u_BTD.shape
        q_BTD, k_BTD = (_over_channels(u_BTD, conv[...]) for conv in (self.q_conv, self.k_conv))
        qk_BTh1 = jnp.sum((q_BTD * k_BTD).reshape(B, T, -1, H), axis=-1, keepdims=True)
        gate_BTh1 = jax.nn.sigmoid(qk_BTh1 / H**0.5)
        return jnp.broadcast_to(gate_BTh1, (B, T, D // H, H)).reshape(B, T, D)

    def readout(self, state):
        return state.carry[0]

    @classmethod
    def idle(cls, cfg):
        return {"decay[0]": "there is no o before the first layer"}

    @classmethod
    def extra_params(cls, cfg):
        return cfg.n_layers * (2 * cls.kernel_size(cfg) + (TIME + 2) * cfg.d_model)

    @classmethod
    def flops_per_token(cls, cfg):
        norms, gate = 2 * 3, 2 * (2 * cls.kernel_size(cfg) - 1) + 2
        value, sums = 2 * TIME - 1 + 4, 3 + 2  # GELU as four
        return cfg.n_layers * cfg.d_model * (norms + gate + value + sums)

    @classmethod
    def io_per_token(cls, cfg):
        D, L, heads = cfg.d_model, cfg.n_layers, cfg.d_model / cls.options(cfg).head_dim
        steps = [
            *io.norm(D),
            io.Step("gate", D, heads),
            io.Step("value", D, D),
            *io.norm(D),
            io.Step("decay and add", 2 * D + heads, D),
            io.Step("merge", 2 * D, D),
        ]
        return io.total(io.standard(D)) + io.total(steps) * L / cfg.n_sublayers

    @classmethod
    def saved_activations(cls, cfg):
        # The stream before each sublayer or layer and at the end, and o between layers; without
        # remat, the stream before o is added too.
        L = cfg.n_layers
        return 1 + L + (L - 1) + (2 * L if cls.remat(cfg) == "none" else 0)


def _over_channels(u_BTD: Float[Array, "B T D"], conv: Float[Array, "c"]) -> Array:
    """Each channel from itself and its neighbours, zero past the ends."""
    D, c = u_BTD.shape[-1], len(conv)
    padded = jnp.pad(u_BTD, ((0, 0), (0, 0), (c // 2, c // 2)))
    return sum(scaled(conv[i], padded[..., i : i + D]) for i in range(c))
