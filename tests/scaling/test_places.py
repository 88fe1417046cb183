"""Which process of how many: flags, Slurm steps and TPU pods."""

import pytest
from jax._src.clusters import ClusterEnv

from scaling.errors import UserError
from scaling.places import Place, find_place

BY_HAND = "several hosts by hand need --coordinator HOST:PORT, --processes N and --process-id I"


@pytest.fixture(autouse=True)
def plain_machine(monkeypatch):
    for name in ("SLURM_STEP_NUM_TASKS", "SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK"):
        monkeypatch.delenv(name, raising=False)


def test_a_plain_machine_is_alone():
    assert find_place() is None
    assert find_place(processes=1) is None
    assert find_place("localhost:1234", 1, 0) is None


def test_flags_give_a_place():
    assert find_place("10.0.0.1:8476", 4, 3) == Place("10.0.0.1:8476", 4, 3)


REFUSED = {
    "half given": (
        ("10.0.0.1:8476", None, None),
        f"--coordinator without --processes and --process-id: {BY_HAND}.",
    ),
    "no coordinator": (
        (None, 2, 0),
        f"--processes and --process-id without --coordinator: {BY_HAND}.",
    ),
    "count alone": ((None, 2, None), "--processes without --coordinator and --process-id"),
    "no port": (("host", 2, 0), "--coordinator 'host' is no HOST:PORT, such as 10.0.0.1:8476."),
    "bad port": (("host:99999", 2, 0), "--coordinator 'host:99999' is no HOST:PORT"),
    "no processes": (("host:1", 0, 0), "--processes 0 must be at least 1."),
    "id too large": (
        ("host:1", 2, 2),
        "--process-id 2 is out of range: with --processes 2 it goes from 0 to 1.",
    ),
    "id negative": (("host:1", 2, -1), "--process-id -1 is out of range"),
}


@pytest.mark.parametrize(("flags", "sentence"), REFUSED.values(), ids=REFUSED)
def test_flags_that_do_not_fit_are_refused(flags, sentence):
    with pytest.raises(UserError) as refusal:
        find_place(*flags)
    assert str(refusal.value).startswith(sentence)


STEP = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_NODELIST": "node[007-008]",
    "SLURM_NTASKS": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
}


@pytest.fixture
def slurm(monkeypatch):
    def set_step(**changes):
        for name, value in {**STEP, **changes}.items():
            monkeypatch.setenv(name, value)

    return set_step


def test_a_slurm_step_of_one_task_a_node_uses_all_devices_of_each(slurm):
    slurm()
    assert find_place() == Place(f"node007:{65535 - 2**12 + 1 + 77}", 2, 1)
    assert find_place(processes=1) is None


def test_a_slurm_step_of_several_tasks_a_node_gives_each_one_device(slurm):
    slurm(SLURM_STEP_NUM_TASKS="4", SLURM_PROCID="3", SLURM_LOCALID="1")
    place = find_place()
    assert (place.processes, place.process, place.local_devices) == (4, 3, (1,))
    slurm(SLURM_STEP_NUM_TASKS="4", SLURM_GPUS_PER_TASK="1")
    assert find_place().local_devices is None  # Slurm has bound them


def test_a_slurm_job_without_a_step_of_several_tasks_is_alone(slurm, monkeypatch):
    slurm(SLURM_STEP_NUM_TASKS="1")
    assert find_place() is None
    monkeypatch.delenv("SLURM_STEP_NUM_TASKS")  # a batch script: SLURM_NTASKS is the job's
    assert find_place() is None


def kind(name):
    return next(kind for kind in ClusterEnv._cluster_types if kind.name == name)


@pytest.fixture
def pod(monkeypatch):
    """A TPU pod as GKE describes one."""
    pod = kind("gketpu")
    monkeypatch.setattr(pod, "is_env_present", lambda: True)
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "localhost,worker1")
    monkeypatch.setenv("TPU_WORKER_ID", "1")
    for name in ("MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID"):
        monkeypatch.setenv(name, "")
    return pod


def test_a_tpu_pod_is_found(pod):
    assert find_place() == Place("localhost:8482", 2, 1)


def test_a_tpu_host_of_its_own_is_alone(pod, monkeypatch):
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "localhost")
    assert find_place() is None


def test_a_tpu_pod_that_cannot_be_asked_says_so(pod, monkeypatch):
    def broken():
        raise RuntimeError("no metadata")

    monkeypatch.setattr(pod, "get_process_count", broken)
    with pytest.raises(UserError, match=r"could not be asked .*\(no metadata\).*--processes 1"):
        find_place()
