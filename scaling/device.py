"""What the devices are called and how fast they can multiply, for the model FLOP utilisation."""

import time

import jax
import jax.numpy as jnp

# Dense bf16 FLOP/s of one device as jax names it; vendors' data sheets, without sparsity.
_PEAK = {
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,
    "TPU v5p": 459e12,
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H200": 989e12,
}


def peak_flops() -> float | None:
    """FLOP/s of all local devices together; None for a device that no table knows.

    On a CPU there is no data sheet to trust: an fp32 matrix product is timed.
    """
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return _measured_matmul_flops()
    per_device = _PEAK.get(device.device_kind)
    return per_device and per_device * jax.local_device_count()


def _measured_matmul_flops(n: int = 1024, repeats: int = 40) -> float:
    """The best of a few timed [n, n] x [n, n] fp32 products."""
    a = jnp.ones((n, n), jnp.float32)
    product = jax.jit(jnp.matmul)
    product(a, a).block_until_ready()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        product(a, a).block_until_ready()
        seconds.append(time.perf_counter() - start)
    return 2 * n**3 / min(seconds)
