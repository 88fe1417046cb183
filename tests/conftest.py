"""Strict numerics, warnings as errors, tiny shared fixtures, one compile cache for all runs."""

import functools
import hashlib
import importlib.util
import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")


def compile_cache() -> Path:
    """For all checkouts; machine code is good for one kind of processor."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text(encoding="utf-8").splitlines() if cpu.exists() else []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    kind = hashlib.sha256(flags.encode()).hexdigest()[:8]
    return Path.home() / ".cache" / "residual-scaling-laws" / f"tests-{kind}"


# Commands run by tests inherit it too.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(compile_cache()))

import jax
import pytest
from absl import flags
from jax.experimental import topologies
from jax.experimental.compilation_cache import compilation_cache

flags.FLAGS.mark_as_parsed()  # grain and tfds look at absl's flags
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


@pytest.fixture(scope="session")
def documents(tmp_path_factory) -> Path:
    """A folder of 60 text files, about 120 kB: a data source that needs no standard library."""
    folder = tmp_path_factory.mktemp("documents")
    for i in range(60):
        lines = [f"document {i} line {j}: the {j * j} quick foxes saw {i * j}" for j in range(45)]
        (folder / f"{i:02}.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="session", autouse=True)
def data_dir(tmp_path_factory) -> Path:
    """Prepared data go to a folder of this test session."""
    folder = tmp_path_factory.mktemp("data")
    os.environ["SCALING_DATA_DIR"] = str(folder)
    return folder


@pytest.fixture(autouse=True)
def strict_dtypes(request):
    """No silent dtype promotion in our numerics; optax, which the trainer calls, relies on it."""
    strict = any(part in request.path.parts for part in ("models", "kernels"))
    with jax.numpy_dtype_promotion("strict" if strict else "standard"):
        yield


@pytest.fixture(scope="session")
def tpu_devices():
    """tpu_devices(topology_name): TPUs to compile for, that are not there."""
    if importlib.util.find_spec("libtpu") is None:
        pytest.skip("needs the extra tpu-aot: make test-tpu")
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # else libtpu asks the network where it runs
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # else it locks out other test workers

    @functools.cache
    def devices(topology_name: str) -> list:
        return topologies.get_topology_desc(platform="tpu", topology_name=topology_name).devices

    return devices


@pytest.fixture(scope="module")
def no_compile_cache():
    """Programs for a device that is not there go into the cache, and do not come out."""
    before = jax.config.jax_enable_compilation_cache
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    yield
    jax.config.update("jax_enable_compilation_cache", before)
    compilation_cache.reset_cache()


def pytest_collection_modifyitems(items):
    """Modules and classes with slow tests first, so that no worker ends on one alone."""
    slow = {_scope(item) for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: _scope(item) not in slow)


def _scope(item) -> str:
    return item.nodeid.rsplit("::", 1)[0]
