"""Lowering for an accelerator that is not there."""

import contextlib
import warnings

import jax


def gpu_text(function, *args) -> str:
    """StableHLO of `function` for a Hopper GPU; the arguments may be `jax.ShapeDtypeStruct`s."""
    with hopper(), warnings.catch_warnings():
        # jax 0.12 announces that Pallas moves its GPU kernels from Triton to Mosaic.
        warnings.filterwarnings("ignore", message="The Pallas Triton backend is deprecated")
        return jax.jit(function).trace(*args).lower(lowering_platforms=("cuda",)).as_text()


def hopper():
    """Tells jax which GPU to lower for; before 0.12 it assumes one by itself."""
    if not hasattr(jax.sharding, "AbstractDevice"):
        return contextlib.nullcontext()
    device = jax.sharding.AbstractDevice(device_kind="NVIDIA H100", num_cores=132, platform="gpu")
    mesh = jax.sharding.AbstractMesh(
        (1,), ("device",), (jax.sharding.AxisType.Explicit,), abstract_device=device
    )
    return jax.sharding.use_abstract_mesh(mesh)
