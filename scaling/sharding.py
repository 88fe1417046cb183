"""Which mesh axes split which logical axis: the one table of rules, and who may ask for what.

A dimension takes its mesh axes from left to right. Where they do not divide it, the rightmost is
dropped until the rest do, so that at last it is replicated; each such case is logged once.
"""

import logging
import math
from collections.abc import Sequence
from functools import cache

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from models.attention import kernel
from models.config import ModelConfig
from scaling.cells import Cell
from scaling.errors import UserError
from scaling.study import Mesh

AXES = ("data", "fsdp", "sequence", "tensor")  # the last changes between the nearest devices

RULES: dict[str | None, tuple[str, ...]] = {
    # activations
    "batch": ("data", "fsdp"),
    "sequence": ("sequence",),
    "stream": ("sequence", "tensor"),
    # activations and weights
    "heads": ("tensor",),
    "kv_heads": ("tensor",),
    "mlp": ("tensor",),
    "vocab": ("tensor",),
    # weights
    "embed": ("fsdp",),
    "features": (),
    "head": (),
    "sublayer": (),
    "layer": (),
    None: (),
}


_PLATFORMS = {
    "implementation": {"pallas_tpu": "tpu", "pallas_gpu": "gpu"},
    "attention": {"splash": "tpu", "cudnn": "gpu"},
}


class Sharding:
    """Logical axes -> NamedSharding, for one model on one mesh."""

    def __init__(self, mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh, cfg: ModelConfig):
        self.mesh = mesh
        # A head lies on one device: these dimensions are split into so many units.
        self._units = {"heads": cfg.n_heads, "kv_heads": cfg.n_kv_heads}

    def __call__(self, axes: Sequence[str | None], shape: Sequence[int]) -> NamedSharding:
        """Where an array lies.

        Args:
          axes: one logical axis a dimension, None for one that is never split.
          shape: of the whole array.

        Raises:
          ValueError: a logical axis that RULES does not name.
        """
        spec, taken = [], set()
        for axis, size in zip(axes, shape, strict=True):
            if axis not in RULES:
                known = ", ".join(name for name in RULES if name)
                raise ValueError(f"no rule for the logical axis {axis!r}; there are {known}, None")
            names = [n for n in RULES[axis] if self.mesh.shape[n] > 1 and n not in taken]
            units = self._units.get(axis, size)
            while names and units % math.prod(self.mesh.shape[n] for n in names):
                dropped = names.pop()
                product = math.prod(self.mesh.shape[n] for n in [*names, dropped])
                log_once(
                    f"mesh: {' x '.join([*names, dropped])} = {product} does not divide {units} "
                    f"({axis}), which is {'split over ' + names[0] if names else 'replicated'}"
                )
            taken.update(names)
            spec.append(tuple(names) if len(names) > 1 else names[0] if names else None)
        return NamedSharding(self.mesh, PartitionSpec(*spec))

    @property
    def replicated(self) -> NamedSharding:
        """The whole array on each device."""
        return NamedSharding(self.mesh, PartitionSpec())


@cache
def log_once(message: str) -> None:
    """A warning of what works otherwise than one may expect, once a process."""
    logging.getLogger("scaling").warning(message)


def check(cells: Sequence[Cell], devices: Sequence[jax.Device]) -> None:
    """Makes sure that cells can be trained on these devices.

    Raises:
      UserError: a mesh does not fit, or a kernel is asked for that this platform does not run.
    """
    platform = devices[0].platform
    for cell in cells:
        mesh, cfg = resolve_mesh(cell, len(devices)), cell.model
        for setting, kernels in _PLATFORMS.items():
            name = getattr(cfg, setting)
            if kernels.get(name, platform) != platform:
                raise UserError(
                    f"model.{setting} {name} runs on {kernels[name]}, and the devices here are "
                    f"{platform}; say auto, which is the best for each platform."
                )
        if cfg.attention == "splash" and kernel(cfg, mesh.sequence > 1) != "splash":
            raise UserError(
                f"{cell.key}: model.attention splash needs seq_len and head_dim in multiples of "
                f"128 and mesh sequence 1; given {cfg.seq_len}, {cfg.head_dim} and "
                f"{mesh.sequence}. Change them, or say auto."
            )
        if cfg.attention == "cudnn" and (
            cfg.dtype == "float32" or mesh.sequence > 1 or cfg.n_kv_heads % mesh.tensor
        ):
            raise UserError(
                f"{cell.key}: model.attention cudnn needs dtype bfloat16, mesh sequence 1 and "
                f"n_kv_heads that mesh tensor divides; given {cfg.dtype}, {mesh.sequence}, "
                f"{cfg.n_kv_heads} and {mesh.tensor}. Change them, or say auto."
            )


def make_mesh(cell: Cell, devices: Sequence[jax.Device]) -> jax.sharding.Mesh:
    """The devices as the cell's `mesh` says, after `resolve_mesh`."""
    shape = [getattr(resolve_mesh(cell, len(devices)), axis) for axis in AXES]
    return jax.make_mesh(shape, AXES, axis_types=(AxisType.Auto,) * len(AXES), devices=devices)


def resolve_mesh(cell: Cell, n_devices: int) -> Mesh:
    """The cell's mesh for so many devices; auto gives them to fsdp, then to sequence.

    Raises:
      UserError: the mesh does not match the devices, or the cell cannot be split so.
    """
    rows, seq_len = cell.micro_batch_size, cell.data.seq_len
    mesh = cell.mesh
    if mesh == "auto":
        fsdp = math.gcd(n_devices, rows)
        sequence = math.gcd(n_devices // fsdp, seq_len)
        mesh = Mesh(fsdp=fsdp, sequence=sequence)
        if fsdp * sequence < n_devices:
            raise UserError(
                f"{cell.key}: {n_devices} devices can share neither the {rows} sequences of a "
                f"micro-batch nor the {seq_len} positions of each; choose a batch_size / "
                f"accumulate that {n_devices} divides, or use fewer devices."
            )
        return mesh
    sizes = {axis: getattr(mesh, axis) for axis in AXES}
    written = " x ".join(f"{axis} {size}" for axis, size in sizes.items() if size > 1) or "data 1"
    if math.prod(sizes.values()) != n_devices:
        raise UserError(
            f"mesh {written} needs {math.prod(sizes.values())} devices, and there are "
            f"{n_devices}; change it, or say `mesh: auto`."
        )
    if rows % (mesh.data * mesh.fsdp):
        raise UserError(
            f"{cell.key}: micro-batches of {rows} sequences (batch_size {cell.train.batch_size} / "
            f"accumulate {cell.train.accumulate}) cannot be split over data x fsdp = "
            f"{mesh.data * mesh.fsdp}; change batch_size, accumulate or mesh."
        )
    if mesh.tensor > cell.model.n_heads:
        raise UserError(
            f"{cell.key}: mesh tensor {mesh.tensor} is larger than the {cell.model.n_heads} heads; "
            "a head lies on one device: give at most as many."
        )
    if seq_len % mesh.sequence:
        raise UserError(
            f"{cell.key}: mesh sequence {mesh.sequence} does not divide seq_len {seq_len}; "
            "change one of them."
        )
    return mesh
