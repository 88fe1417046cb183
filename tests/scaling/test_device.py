"""Peaks by the names that drivers and compilers report, and a sentence for the rest."""

import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from scaling import device
from scaling.device import CHIPS, chip, chip_of, mfu_note, peak_flops

GIB = 2**30


def fake(kind: str, platform: str = "gpu", process_index: int = 0, **attributes):
    return SimpleNamespace(
        device_kind=kind, platform=platform, process_index=process_index, **attributes
    )


@pytest.mark.parametrize(
    ("kind", "teraflops"),
    [
        ("TPU v4", 275),
        ("TPU v5 lite", 197),
        ("TPU v5", 459),
        ("TPU v5p", 459),
        ("TPU v6 lite", 918),
        ("TPU7x", 1153.5),  # half a chip
        ("NVIDIA H100 80GB HBM3", 1979 / 2),  # as printed, with sparsity
        ("NVIDIA H100 PCIe", 1513 / 2),
        ("NVIDIA H100 NVL", 1671 / 2),
        ("NVIDIA H200", 1979 / 2),
        ("NVIDIA GH200 480GB", 1979 / 2),
        ("NVIDIA B200", 4500 / 2),
        ("NVIDIA GB200", 5000 / 2),
        ("NVIDIA A100-SXM4-40GB", 624 / 2),
        ("NVIDIA A100-SXM4-80GB", 624 / 2),
        ("NVIDIA A100-PCIE-40GB", 624 / 2),
        ("NVIDIA A100 80GB PCIe", 624 / 2),
        ("NVIDIA A10G", 70),
        ("NVIDIA L4", 242 / 2),
        ("NVIDIA L40S", 733 / 2),
        ("NVIDIA GeForce RTX 4090", 330.3 / 2),
        ("NVIDIA RTX A6000", 309.7 / 2),
        ("Tesla V100-SXM2-16GB", 125),
        ("Tesla T4", 65),
    ],
)
def test_peaks_are_dense(kind, teraflops):
    """Against the sheets' printed figures, halved where those assume sparsity; they round to 1%."""
    assert chip(kind).flops / 1e12 == pytest.approx(teraflops, rel=0.015)


# NVIDIA's white papers: multiprocessors, dense FMAs a clock and multiprocessor, boost clock. The
# sheet of the L40S is 1.2% below their product, and below half of its own sparse figure.
@pytest.mark.parametrize(
    ("kind", "multiprocessors", "fmas", "boost_hz"),
    [
        ("Tesla V100-SXM2-16GB", 80, 512, 1.53e9),
        ("Tesla T4", 40, 512, 1.59e9),
        ("NVIDIA A100-SXM4-80GB", 108, 1024, 1.41e9),
        ("NVIDIA A40", 84, 512, 1.74e9),
        ("NVIDIA RTX A6000", 84, 512, 1.80e9),
        ("NVIDIA L40S", 142, 512, 2.52e9),
        ("NVIDIA GeForce RTX 4090", 128, 256, 2.52e9),
        ("NVIDIA GeForce RTX 3090", 82, 256, 1.695e9),
        ("NVIDIA H100 80GB HBM3", 132, 2048, 1.83e9),
        ("NVIDIA H100 PCIe", 114, 2048, 1.62e9),
    ],
)
def test_peaks_are_what_the_units_can_do(kind, multiprocessors, fmas, boost_hz):
    assert chip(kind).flops == pytest.approx(multiprocessors * fmas * 2 * boost_hz, rel=0.015)


def test_figures_are_of_one_order():
    """A slip of a unit would show: arithmetic intensities and sizes of real chips lie close."""
    for name, figures in CHIPS.items():
        assert 50 <= figures.flops / figures.hbm_bandwidth <= 600, name
        assert 14 * GIB <= figures.hbm_bytes <= 200 * GIB, name


def test_all_devices_count_and_half_chips_count_half():
    assert peak_flops([fake("NVIDIA H200")] * 8) == 8 * chip("NVIDIA H200").flops
    split = fake("TPU v4", "tpu", num_cores=1)
    assert chip_of(split).flops == 275e12 / 2
    assert peak_flops([split] * 8) == peak_flops([fake("TPU v4", "tpu", num_cores=2)] * 4)
    assert chip_of(fake("TPU7x", "tpu", num_cores=1)) == chip("TPU7x")  # is half already
    assert chip_of(fake("TPU v6 lite", "tpu", num_cores=1)) == chip("TPU v6 lite")


def test_an_unknown_device_says_so():
    known, unknown = fake("NVIDIA H200"), fake("NVIDIA H300 Ultra")
    assert chip("NVIDIA H300 Ultra") is None and chip_of(unknown) is None
    assert peak_flops([known, unknown]) is None
    assert mfu_note([known, unknown]) == 'mfu: unknown device "NVIDIA H300 Ultra"'
    assert mfu_note([known]) is None and mfu_note() is None


def test_a_cpu_is_measured_once(monkeypatch):
    calls = []
    monkeypatch.setattr(device, "measure_matmul_flops", lambda: calls.append(1) or 5e10)
    device._cpu_flops.cache_clear()
    try:
        one_host = [fake("cpu", "cpu")] * 8
        assert peak_flops(one_host) == peak_flops(one_host) == 5e10
        assert peak_flops([*one_host, fake("cpu", "cpu", process_index=1)]) == 1e11
        assert len(calls) == 1
    finally:
        device._cpu_flops.cache_clear()


def test_the_measurement_is_of_this_machines_order():
    assert 1e9 < device.measure_matmul_flops(n=256, repeats=3) < 1e14


@pytest.mark.tpu_aot
@pytest.mark.parametrize("topology", ["v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2", "tpu7x:2x2x1"])
def test_the_tpu_compiler_knows_these_names_and_sizes(tpu_devices, topology):
    """It states the memory a program may have when one wants more."""
    tpu_devices("v5e:2x2")  # skips where there is no compiler
    whole = {"chip_config_name": "megacore"} if topology.startswith("v4") else {}
    found = topologies.get_topology_desc(platform="tpu", topology_name=topology, **whole).devices[0]
    shape = (400, 2**30)
    huge = jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=SingleDeviceSharding(found))
    with pytest.raises(jax.errors.JaxRuntimeError, match="available HBM") as refusal:
        jax.jit(jnp.sin).lower(huge).compile()
    (gib,) = re.findall(r"available HBM \(([\d.]+)G\)", str(refusal.value))
    assert chip_of(found).hbm_bytes / GIB == pytest.approx(float(gib), abs=0.005)
