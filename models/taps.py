"""Layers whose sublayers can be listened to, one after the other."""

import dataclasses
from collections.abc import Callable
from functools import partial

import jax

from models.depth import Layer


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
