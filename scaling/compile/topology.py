"""Devices to compile for, given by the name of a topology: most of them are not here."""

import contextlib
import importlib.util
import math
import os
import re
import warnings
from dataclasses import dataclass

from scaling.errors import UserError

# As libtpu calls them, and an example of each.
KINDS = {
    "v4": "v4:2x2x1",
    "v5e": "v5e:4x4",
    "v5p": "v5p:2x2x4",
    "v6e": "v6e:2x4",
    "tpu7x": "tpu7x:2x2x1",
    "cpu": "cpu:8",
}
_LARGEST = 16_384  # chips; the compiler does not return from absurd numbers of them
_PLANAR = ("v5e", "v6e")
_WITHOUT_TPU = {
    "TPU_SKIP_MDS_QUERY": "1",  # else libtpu asks the network where it runs
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # else it locks out other processes
    "TPU_WORKER_HOSTNAMES": "localhost",  # else it complains that it knows none
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
}
_INSTALL = 'make setup-tpu, or pip install "jax[tpu]"'


@dataclass(frozen=True)
class Topology:
    """A name such as v5p:2x2x4, taken apart."""

    kind: str
    shape: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.kind}:{'x'.join(map(str, self.shape))}"


def parse(name: str) -> Topology:
    """Reads a topology's name.

    Raises:
      UserError: it is none of the known kinds, or its shape does not fit the kind.
    """
    kind, _, shape = name.partition(":")
    if kind not in KINDS:
        raise UserError(f"unknown topology {name!r}; known: {_known()}.")
    axes = {"cpu": 1}.get(kind, 2 if kind in _PLANAR else 3)
    wanted = {1: "N", 2: "XxY", 3: "XxYxZ"}[axes]
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", shape) or shape.count("x") != axes - 1:
        what = "devices" if kind == "cpu" else "chips"
        raise UserError(
            f"topology {name!r}: {kind} takes the number of {what} as {kind}:{wanted}, such as "
            f"{KINDS[kind]}."
        )
    sizes = tuple(map(int, shape.split("x")))
    if math.prod(sizes) > _LARGEST:
        raise UserError(f"topology {name!r}: more than {_LARGEST:,} devices; give a smaller one.")
    return Topology(kind, sizes)


def _known() -> str:
    """The kinds of topology with an example of each."""
    return ", ".join(f"{kind} (as in {example})" for kind, example in KINDS.items())


def devices(topology: Topology) -> list:
    """The devices, as jax has them.

    For a CPU it must come before anything else of this process uses jax's devices.

    Raises:
      UserError: the TPU compiler is not installed or refuses the topology; too few CPU devices.
    """
    return _cpus(topology) if topology.kind == "cpu" else _tpus(topology)


def local_devices() -> list:
    """The devices of this machine."""
    import jax

    return jax.devices()


def _cpus(topology: Topology) -> list:
    import jax

    (wanted,) = topology.shape
    jax.config.update("jax_platforms", "cpu")
    with contextlib.suppress(RuntimeError):  # the backend runs already: take what it has
        jax.config.update("jax_num_cpu_devices", wanted)
    found = jax.devices("cpu")
    if len(found) < wanted:
        raise UserError(
            f"topology {topology.name!r}: this process has {len(found)} CPU devices already; "
            f"unset XLA_FLAGS, or set it to --xla_force_host_platform_device_count={wanted}."
        )
    return found[:wanted]


def _tpus(topology: Topology) -> list:
    if importlib.util.find_spec("libtpu") is None:
        raise UserError(
            f"topology {topology.name!r} needs the TPU compiler, which needs no TPU: {_INSTALL}. "
            "Without it: --topology cpu:8."
        )
    for name, value in _WITHOUT_TPU.items():
        os.environ.setdefault(name, value)
    import jax
    from jax.experimental import topologies

    jax.config.update("jax_platforms", "cpu")  # nothing runs on what may be here
    shape = (*topology.shape, 1)[:3]
    options = {"chip_config_name": "megacore"} if topology.kind == "v4" else {}
    error = None
    # A whole host is 2x2x1 chips; the smaller ones are single hosts of their own shape.
    for bounds in (None, *([list(shape)] if math.prod(shape) <= 8 else [])):
        hosts = {"chips_per_host_bounds": bounds} if bounds else {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # libtpu says that there is no TPU here
                found = topologies.get_topology_desc(
                    platform="tpu", topology_name=topology.name, **options, **hosts
                )
            return list(found.devices)
        except Exception as refusal:
            error = error or refusal
    reason = " ".join(str(error).split("===")[0].split()).removeprefix("INVALID_ARGUMENT: ")
    raise UserError(f"topology {topology.name!r}: the TPU compiler refuses it: {reason}")
