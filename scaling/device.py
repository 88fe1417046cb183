"""What devices are called, how fast they multiply and what they hold: for MFU and memory checks."""

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

_GIB = 2**30


@dataclass(frozen=True)
class Chip:
    """Data-sheet figures of one device as JAX counts devices."""

    flops: float  # dense bf16 FLOP/s
    hbm_bytes: int
    hbm_bandwidth: float  # bytes/s


def _chip(teraflops: float, gib: float, gigabytes_per_second: float) -> Chip:
    return Chip(teraflops * 1e12, int(gib * _GIB), gigabytes_per_second * 1e9)


# Google's "system architecture" pages (docs.cloud.google.com/tpu/docs/v4 to /tpu7x). Memory is what
# the TPU compiler lets a program have: 0.25 to 1.25 GiB below what is printed, but for v5p (95).
# JAX says "TPU v5" for v5p, and "lite" for v5e and v6e; the names on the right occur elsewhere.
_V5E, _V5P, _V6E = _chip(197, 15.75, 819), _chip(459, 95.74, 2765), _chip(918, 31.25, 1638)
_TPU = {
    "TPU v4": _chip(275, 30.75, 1228),
    "TPU v5 lite": _V5E, "TPU v5e": _V5E,
    "TPU v5": _V5P, "TPU v5p": _V5P,
    "TPU v6 lite": _V6E, "TPU v6e": _V6E,
    "TPU7x": _chip(2307 / 2, 94.75, 7380 / 2),  # a chip is two devices, and cannot be one
}  # fmt: skip
_TWO_CORES_IN_ONE = {"TPU v4", "TPU v5", "TPU v5p"}

# NVIDIA's data sheets. From Hopper on, and for Ada and Ampere workstation cards, they print the
# sparse figure; dense is half of it. A sheet's GB of memory are GiB, of which drivers show 0 to 7%
# less. GeForce cards accumulate in fp32 at half of the rate that is advertised first.
_GPU = {
    "NVIDIA GB200": _chip(2500, 186, 8000),
    "NVIDIA B200": _chip(2250, 180, 7700),
    "NVIDIA GH200 480GB": _chip(989.4, 96, 4000),
    "NVIDIA H200": _chip(989.4, 141, 4800),
    "NVIDIA H200 NVL": _chip(835.5, 141, 4800),
    "NVIDIA H100 80GB HBM3": _chip(989.4, 80, 3350),
    "NVIDIA H100 NVL": _chip(835.5, 94, 3900),
    "NVIDIA H100 PCIe": _chip(756, 80, 2000),
    "NVIDIA A100-SXM4-80GB": _chip(312, 80, 2039),
    "NVIDIA A100-SXM4-40GB": _chip(312, 40, 1555),
    "NVIDIA A100 80GB PCIe": _chip(312, 80, 1935),
    "NVIDIA A100-PCIE-40GB": _chip(312, 40, 1555),
    "NVIDIA A40": _chip(149.7, 48, 696),
    "NVIDIA A10": _chip(125, 24, 600),
    "NVIDIA A10G": _chip(70, 24, 600),
    "NVIDIA L4": _chip(121, 24, 300),
    "NVIDIA L40S": _chip(362.05, 48, 864),
    "NVIDIA RTX 6000 Ada Generation": _chip(364.2, 48, 960),
    "NVIDIA RTX A6000": _chip(154.8, 48, 768),
    "NVIDIA GeForce RTX 4090": _chip(165.2, 24, 1008),
    "NVIDIA GeForce RTX 3090": _chip(71, 24, 936),
    # Without bf16 matrix units: the fp16 rate, so that MFU is against what the chip could do.
    "Tesla V100-SXM2-16GB": _chip(125, 16, 900),
    "Tesla V100-SXM2-32GB": _chip(125, 32, 900),
    "Tesla T4": _chip(65, 16, 320),
}
CHIPS = _TPU | _GPU


def chip(device_kind: str) -> Chip | None:
    """The figures of a device by the name JAX and the driver give it; None for an unknown one."""
    return CHIPS.get(device_kind)


def chip_of(device: jax.Device) -> Chip | None:
    """`chip` of a device; half of it where a TPU chip's two cores are used as two devices."""
    whole = chip(device.device_kind)
    split = device.device_kind in _TWO_CORES_IN_ONE and getattr(device, "num_cores", 2) == 1
    if whole is None or not split:
        return whole
    return Chip(whole.flops / 2, whole.hbm_bytes // 2, whole.hbm_bandwidth / 2)


def peak_flops(devices: Sequence[jax.Device] | None = None) -> float | None:
    """FLOP/s of all `devices` together (default: those of all hosts); None if one is unknown.

    For a CPU there is no data sheet to trust: an fp32 matrix product is timed, once a process,
    and every host counts as one such machine, whatever number of devices it plays.
    """
    devices = jax.devices() if devices is None else devices
    if devices[0].platform == "cpu":
        return len({device.process_index for device in devices}) * _cpu_flops()
    chips = [chip_of(device) for device in devices]
    return None if None in chips else sum(found.flops for found in chips)


def mfu_note(devices: Sequence[jax.Device] | None = None) -> str | None:
    """Why a run has no MFU: `mfu: unknown device "NAME"`; None where it has one."""
    devices = jax.devices() if devices is None else devices
    unknown = (d for d in devices if d.platform != "cpu" and chip(d.device_kind) is None)
    device = next(unknown, None)
    return device and f'mfu: unknown device "{device.device_kind}"'


@functools.cache
def _cpu_flops() -> float:
    return measure_matmul_flops()


def measure_matmul_flops(n: int = 1024, repeats: int = 40) -> float:
    """FLOP/s of the best of a few timed [n, n] x [n, n] fp32 products on the default device."""
    a = jnp.ones((n, n), jnp.float32)
    product = jax.jit(jnp.matmul)
    product(a, a).block_until_ready()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        product(a, a).block_until_ready()
        seconds.append(time.perf_counter() - start)
    return 2 * n**3 / min(seconds)


def program_memory(compiled: jax.stages.Compiled) -> dict[str, int | None]:
    """What a program takes on one device in bytes, by kind; "peak" is all, with aliases once.

    All are None where the compiler keeps no account.
    """
    found = compiled.memory_analysis()
    if found is None:
        kinds = ("arguments", "outputs", "aliased", "temporaries", "code", "peak")
        return dict.fromkeys(kinds)
    sizes = {
        "arguments": found.argument_size_in_bytes,
        "outputs": found.output_size_in_bytes,
        "aliased": found.alias_size_in_bytes,
        "temporaries": found.temp_size_in_bytes,
        "code": found.generated_code_size_in_bytes,
    }
    return sizes | {"peak": sum(sizes.values()) - 2 * sizes["aliased"]}
