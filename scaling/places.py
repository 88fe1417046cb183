"""Which process of how many this one is: as flags say, or Slurm, or a TPU pod."""

import os
from dataclasses import dataclass

from scaling.errors import UserError

_BY_HAND = "several hosts by hand need --coordinator HOST:PORT, --processes N and --process-id I"


@dataclass(frozen=True)
class Place:
    """One process among several that run one launch together."""

    coordinator: str  # HOST:PORT, served by process 0
    processes: int
    process: int
    local_devices: tuple[int, ...] | None = None  # of this machine; None means all


def find_place(
    coordinator: str | None = None, processes: int | None = None, process_id: int | None = None
) -> Place | None:
    """The place that the flags or the cluster give this process; None where it is alone.

    Detected are a Slurm step of several tasks and a TPU pod of several hosts. `processes=1`
    without the other two turns the detection off.

    Raises:
      UserError: flags that are incomplete or do not fit, or a TPU pod that cannot be asked.
    """
    flags = {"--coordinator": coordinator, "--processes": processes, "--process-id": process_id}
    given = [name for name, value in flags.items() if value is not None]
    if not given:
        return _slurm() or _tpu_pod()
    if given == ["--processes"] and processes == 1:
        return None
    missing = [name for name in flags if name not in given]
    if missing:
        raise UserError(f"{' and '.join(given)} without {' and '.join(missing)}: {_BY_HAND}.")
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UserError(f"--coordinator {coordinator!r} is no HOST:PORT, such as 10.0.0.1:8476.")
    if processes < 1:
        raise UserError(f"--processes {processes} must be at least 1.")
    if not 0 <= process_id < processes:
        raise UserError(
            f"--process-id {process_id} is out of range: with --processes {processes} it goes "
            f"from 0 to {processes - 1}."
        )
    return Place(coordinator, processes, process_id) if processes > 1 else None


def _slurm() -> Place | None:
    """What JAX would find, except for the devices: JAX gives each task one, even a lone one."""
    from jax._src.clusters import ClusterEnv

    # `srun` sets it; in a batch script or under `salloc`, SLURM_NTASKS is of the whole job.
    tasks = int(os.environ.get("SLURM_STEP_NUM_TASKS", "1"))
    slurm = _environment(ClusterEnv, "slurm")
    if tasks < 2 or slurm is None:
        return None
    alone = tasks == int(os.environ.get("SLURM_STEP_NUM_NODES", "1"))
    # A task that Slurm has bound to its own GPUs sees only those.
    bound = "SLURM_GPUS_PER_TASK" in os.environ or "SLURM_TRES_PER_TASK" in os.environ
    local = None if alone or bound else (slurm.get_local_process_id(),)
    return Place(_address(slurm), tasks, slurm.get_process_id(), local)


def _tpu_pod() -> Place | None:
    from jax._src.clusters import ClusterEnv

    try:
        pod = _environment(ClusterEnv, "gcetpu") or _environment(ClusterEnv, "gketpu")
        if pod is None or pod.get_process_count() < 2:
            return None
        return Place(_address(pod), pod.get_process_count(), pod.get_process_id())
    except Exception as error:  # what JAX's detection raises depends on what it asks
        raise UserError(
            f"the TPU pod could not be asked for its hosts ({' '.join(str(error).split())[:200]}); "
            f"{_BY_HAND}, or give --processes 1 to use this host alone."
        ) from error


def _environment(known: type, name: str) -> type | None:
    """JAX's class for a kind of cluster, where this process runs in one."""
    found = next((kind for kind in known._cluster_types if kind.name == name), None)
    return found if found is not None and found.is_env_present() else None


def _address(kind: type) -> str:
    port = os.environ.get("JAX_COORDINATOR_PORT")
    return kind.get_coordinator_address(timeout_secs=300, override_coordinator_port=port)
