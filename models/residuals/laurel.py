"""LAuReL: a learned residual, of weights on both terms or with a low-rank map of the stream."""

from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from pydantic import Field

from models.linear import linear
from models.params import param
from models.residuals import io
from models.residuals.arithmetic import scaled, weighted_sum
from models.residuals.base import Residual, State


class Laurel(Residual):
    """x <- a f_l(x) + b (x + A_l B_l x), or the same of a learned sum of the last k streams.

    rw: (a, b) = 2 softmax(weights_l), without the map. lr: a = b = 1. rw+lr: both. pa:
    x <- f_l(x) + x + A_l B_l sum_j gamma_lj x_{l-j} over j < k, as far back as the embedding.
    """

    class Options(Residual.Options):
        """rank of the map (8), in all forms but rw; k streams (3), in form pa alone."""

        form: Literal["rw", "lr", "pa", "rw+lr"] = "lr"
        rank: int | None = Field(default=None, ge=1)
        k: int | None = Field(default=None, ge=1)

    family = "single stream"
    summary = "weights on both terms, or a low-rank map of the stream besides"
    equation = "x' = a f_l(x) + b (x + A_l B_l x)"
    source = "arXiv 2411.07501, section 2"
    notes = (
        "A starts at zero, gamma at one, and (a, b), twice a softmax so that they are bounded, at "
        "(1, 1), which the paper leaves open. The previous "
        "activations of a layer share one map, so that they are summed before it."
    )
    reduces_to_prenorm_at_init = True
    examples: ClassVar = {
        "": {},
        "rw": {"form": "rw"},
        "rw+lr": {"form": "rw+lr", "rank": 4},
        "pa": {"form": "pa"},
        "pa of all": {"form": "pa", "rank": 4, "k": 6},
    }

    @classmethod
    def options(cls, cfg):
        options = super().options(cfg)
        defaults = {"rank": min(8, cfg.d_model) if options.form != "rw" else None, "k": None}
        limits = {"rank": (cfg.d_model, "d_model {}"), "k": (cfg.n_sublayers, "the {} sublayers")}
        if options.form == "pa":
            defaults["k"] = min(3, cfg.n_sublayers)
        for name, default in defaults.items():
            given, (limit, words) = getattr(options, name), limits[name]
            if default is None and given is not None:
                raise ValueError(f"{name} {given} is given, and form {options.form} has none")
            if default is not None and (given or default) > limit:
                raise ValueError(f"{name} {given or default} must be 1 to {words.format(limit)}")
            options = options.model_copy(update={name: given or default})
        return options

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        options, S, D = self.options(cfg), cfg.n_sublayers, cfg.d_model
        self.form, self.k = options.form, options.k or 1
        if "rw" in self.form:
            self.weights = param(None, (S, 2), 0.0, axes=("sublayer", None), group="vector")
        if self.form != "rw":
            r, normal = options.rank, jax.nn.initializers.truncated_normal(D**-0.5)
            axes_Dr, axes_rD = ("sublayer", "embed", None), ("sublayer", None, "embed")
            self.down = param(key, (S, D, r), normal, axes=axes_Dr, group="mixing")
            self.up = param(None, (S, r, D), 0.0, axes=axes_rD, group="mixing")
        if self.form == "pa":
            self.gamma = param(None, (S, self.k), 1.0, axes=("sublayer", None), group="vector")

    def init(self, x_BTD):
        return State(history=(), carry=(x_BTD,))  # streams, the latest first

    def begin(self, state, segment):
        if not self.is_scanned(self.cfg, segment):
            return state
        missing = self.k - len(state.carry)  # a scan's carry cannot grow
        return state._replace(carry=(*state.carry, *[jnp.zeros_like(state.carry[0])] * missing))

    def read(self, state, site):
        return state.carry[0]

    def write(self, state, site, y_BTD):
        x_BTD = state.carry[0]
        branch = skip = jnp.float32(1)
        if "rw" in self.form:
            branch, skip = 2 * jax.nn.softmax(self.weights[...])
        new_BTD = scaled(branch, y_BTD) + scaled(skip, x_BTD)
        if self.form != "rw":
            z_BTr = linear(self._mapped(state.carry), self.down[...], "embed", None)
            new_BTD += linear(z_BTr, skip * self.up[...], None, "embed").astype(jnp.float32)
        streams = (new_BTD.astype(x_BTD.dtype), *state.carry)
        return state._replace(carry=streams[: self.k])

    def _mapped(self, streams):
        """What the low-rank map is applied to."""
        if self.form != "pa":
            return streams[0]
        return weighted_sum([self.gamma[j] for j in range(len(streams))], streams)

    def readout(self, state):
        return state.carry[0]

    @classmethod
    def extra_params(cls, cfg):
        options = cls.options(cfg)
        low_rank = 2 * cfg.d_model * (options.rank or 0)
        return cfg.n_sublayers * (low_rank + 2 * ("rw" in options.form) + (options.k or 0))

    @classmethod
    def n_previous(cls, cfg) -> int:
        """Streams that are summed before the map, over all sublayers."""
        k = cls.options(cfg).k or 0
        return sum(min(k, site + 1) for site in range(cfg.n_sublayers))

    @classmethod
    def flops_per_token(cls, cfg):
        options, S, D = cls.options(cfg), cfg.n_sublayers, cfg.d_model
        weights = 2 * D * S * ("rw" in options.form)
        low_rank = S * (4 * options.rank * D + D) if options.rank else 0
        sums = 2 * cls.n_previous(cfg) * D - S * D if options.form == "pa" else 0
        return weights + low_rank + sums

    @classmethod
    def io_per_token(cls, cfg):
        options, S, D = cls.options(cfg), cfg.n_sublayers, cfg.d_model
        if options.form == "rw":
            return io.total(io.standard(D))
        steps = [*io.low_rank(D, options.rank), io.Step("merge", 3 * D, D)]
        if options.form == "pa":
            steps.append(io.Step("sum of streams", cls.n_previous(cfg) / S * D, D))
        return io.total(steps)

    @classmethod
    def saved_activations(cls, cfg):
        options, S = cls.options(cfg), cfg.n_sublayers
        if cls.remat(cfg) != "none":
            # Of several streams, those between a layer's sublayers too (not the last layer's).
            return 1 + cfg.n_layers + (cfg.n_layers - 1) * ((options.k or 1) > 1)
        outputs = S * ("rw" in options.form)  # for the gradient of their weight
        sums = (S - 1) * ((options.k or 1) > 1)  # of the embedding alone: a multiple of it
        return 1 + S + outputs + sums
