"""Highway networks: a gate decides between the stream and the output."""

from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from pydantic import Field

from kernels import score
from models.linear import linear
from models.params import param
from models.residuals import io
from models.residuals.arithmetic import added, rms_norm, scaled
from models.residuals.single_stream import SingleStream


class Highway(SingleStream):
    """x <- (1 - g) x + g f_l(x), g = sigmoid(W_l Norm(x) + b_l).

    Coupled gates make h_l a mean of the embedding and all earlier outputs, whose weights are those
    of a stick broken in l places. Uncoupled, x <- x + g f_l(x).
    """

    class Options(SingleStream.Options):
        """One gate a token, or one a channel from a matrix W of full rank or of `rank` (8).

        bias is what b starts at, so that branches start with the weight sigmoid(bias).
        """

        gate: Literal["scalar", "low_rank", "full"] = "scalar"
        bias: float = -2.0
        rank: int | None = Field(default=None, ge=1)
        coupled: bool = True

    summary = "a gate between the stream and every output"
    equation = "x' = (1-g) x + g f_l(x),  g = σ(W_l Norm(x) + b_l)"
    source = "arXiv 1505.00387, Eq. 3"
    notes = (
        "W starts at zero (its factor up, where the rank is low) and reads the normalised stream; "
        "a scalar or low-rank gate, and the uncoupled form, are cheaper relatives. With bias -2 "
        "every output enters with weight 0.12, and the embedding is left with 0.88 to the power "
        "of the sublayers."
    )
    reduces_to_prenorm_at_init = False
    examples: ClassVar = {
        "": {},
        "low rank": {"gate": "low_rank", "rank": 4},
        "full": {"gate": "full", "bias": -1.0},
        "uncoupled": {"coupled": False},
        "full, uncoupled": {"gate": "full", "coupled": False},
    }

    @classmethod
    def options(cls, cfg):
        options = super().options(cfg)
        if options.gate != "low_rank":
            if options.rank is not None:
                raise ValueError(f"rank {options.rank} is for gate low_rank, not {options.gate}")
            return options
        options = options.model_copy(update={"rank": options.rank or min(8, cfg.d_model)})
        if options.rank > cfg.d_model:
            raise ValueError(f"rank {options.rank} must be 1 to d_model {cfg.d_model}")
        return options

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        options, S, D = self.options(cfg), cfg.n_sublayers, cfg.d_model
        self.gate, self.coupled = options.gate, options.coupled
        if self.gate == "low_rank":
            r, normal = options.rank, jax.nn.initializers.truncated_normal(D**-0.5)
            axes_Dr, axes_rD = ("sublayer", "embed", None), ("sublayer", None, "embed")
            self.down = param(key, (S, D, r), normal, axes=axes_Dr, group="mixing")
            self.up = param(None, (S, r, D), 0.0, axes=axes_rD, group="mixing")
        elif self.gate == "full":
            axes = ("sublayer", "embed", "features")
            self.weight = param(None, (S, D, D), 0.0, axes=axes, group="mixing")
        else:
            self.weight = param(None, (S, D), 0.0, axes=("sublayer", "features"), group="mixing")
        width = () if self.gate == "scalar" else (D,)
        axes = ("sublayer", "features")[: 1 + len(width)]
        self.bias = param(None, (S, *width), options.bias, axes=axes, group="vector")

    def _logits(self, x_BTD):
        """Of the gates, in fp32: [B, T] or [B, T, D]."""
        eps = self.cfg.norm_eps
        if self.gate == "scalar":
            return score(x_BTD, self.weight[None], eps=eps)[0] + self.bias[...]
        z = rms_norm(x_BTD, eps)
        if self.gate == "full":
            z = linear(z, self.weight[...], "embed", "features")
        else:
            z = linear(linear(z, self.down[...], "embed", None), self.up[...], None, "embed")
        return z.astype(jnp.float32) + self.bias[None, None]

    def write(self, state, site, y_BTD):
        x_BTD, y_BTD = state.carry, y_BTD.astype(jnp.float32)
        if self.coupled:
            y_BTD = y_BTD - x_BTD.astype(jnp.float32)
        gate = jax.nn.sigmoid(self._logits(x_BTD))
        return state._replace(carry=added(x_BTD, scaled(gate, y_BTD)))

    @classmethod
    def extra_params(cls, cfg):
        options, D = cls.options(cfg), cfg.d_model
        gates = {"scalar": D + 1, "full": D * D + D, "low_rank": 2 * D * (options.rank or 0) + D}
        return cfg.n_sublayers * gates[options.gate]

    @classmethod
    def flops_per_token(cls, cfg):
        options, D = cls.options(cfg), cfg.d_model
        products = {"scalar": D, "full": D * D, "low_rank": 2 * D * (options.rank or 0)}
        # The statistic of Norm(x) is 2D. Where channels have gates, Norm(x) and the bias are D
        # each, and the sigmoid (negate, add, divide) is 3D.
        gate = 2 * D + 2 * products[options.gate] + 5 * D * (options.gate != "scalar")
        return cfg.n_sublayers * (gate + D + D * options.coupled)

    @classmethod
    def io_per_token(cls, cfg):
        options, D = cls.options(cfg), cfg.d_model
        if options.gate == "low_rank":
            gate = io.low_rank(D, options.rank)
        else:
            gate = [io.Step("gate", D, 1 if options.gate == "scalar" else D)]
        gates = 1 if options.gate == "scalar" else D
        return io.total([*gate, io.Step("merge", 2 * D + gates, D)])

    @classmethod
    def saved_activations(cls, cfg):
        if cls.remat(cfg) != "none":
            return 1 + cfg.n_layers
        # Streams, and what the gate multiplies; with gates a channel also Norm(x), g and sigmoid'.
        return 1 + cfg.n_sublayers * (2 if cls.options(cfg).gate == "scalar" else 5)
