"""Layers whose sublayers can be listened to, and reads over depth that can be changed."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jaxtyping import Array, Float

from models.depth import Layer
from models.residuals.base import Residual, Site
from models.residuals.reading import Reading


@partial(jax.tree_util.register_dataclass, data_fields=["layer"], meta_fields=["tap"])
@dataclasses.dataclass
class Tapped:
    """Gives every input and output to `tap(x, y)`, which returns the output to go on with.

    Calls come in the order of sublayers where depth is unrolled and nothing is computed again
    (`scan` false, `remat` none), which whoever uses this must see to.
    """

    layer: Layer
    tap: Callable

    def attend(self, x, keys_values):
        """See models.depth.Layer."""
        y_BTD, more = self.layer.attend(x, keys_values)
        return self.tap(x, y_BTD), more

    def feed_forward(self, x_BTD):
        """See models.depth.Layer."""
        return self.tap(x_BTD, self.layer.feed_forward(x_BTD))


@partial(jax.tree_util.register_dataclass, data_fields=["residual"], meta_fields=["mix"])
@dataclasses.dataclass
class TappedReads:
    """A residual connection with `sources`, whose reads are what `mix(reading, read)` returns.

    `read` is the number of the sublayer, traced in a scan, and n_sublayers at the readout.
    """

    residual: Residual
    mix: Callable[[Reading, Site], Float[Array, "B T D"]]

    def read(self, state, site):
        """See models.residuals.base.Residual."""
        return self.mix(self.residual.reading(state, site), site)

    def readout(self, state):
        """See models.residuals.base.Residual."""
        return self.read(state, self.residual.cfg.n_sublayers)

    def __getattr__(self, name: str) -> Any:
        if name == "residual":  # while JAX puts it together
            raise AttributeError(name)
        return getattr(self.residual, name)
