"""Several processes that run one launch together: `jax.distributed` behind a few functions.

In a process that is alone, which is the usual case, they cost nothing and do nothing.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from scaling.errors import UserError
from scaling.places import Place
from scaling.rendezvous import meet
from scaling.watchdog import LONG, RESUMES, SILENCE_SECONDS, Life, Watchdog

_AT, _END, _LIFE, _SAID = (f"scaling/{name}/" for name in ("at", "end", "life", "said"))


class HostError(Exception):
    """Another process is late, or gone; the message names it."""


@dataclass
class _Cluster:
    """This process among the others."""

    place: Place
    names: list[str]
    timeout: float
    heard: float  # when process 0, which serves what all say, answered last
    client: Any  # of JAX's coordination service: key-values and barriers
    watchdog: Watchdog
    told: Any = None
    life: Life = field(default_factory=Life)
    exchanges: int = 0
    barriers: int = 0
    ended: threading.Lock = field(default_factory=threading.Lock)

    @property
    def poll_seconds(self) -> float:
        return min(2.0, self.timeout / 8)

    def publish(self, folder: str, value: Any) -> None:
        """Makes a value known to all, in place of the one before."""
        key = f"{folder}{self.place.process}"
        self.client.key_value_set(key, json.dumps(value), allow_overwrite=True)

    def read(self, folder: str) -> dict[int, Any]:
        """What the processes have published, by process."""
        pairs = self.client.key_value_dir_get(folder)
        return {int(key.rpartition("/")[2]): json.loads(value) for key, value in pairs}


_cluster: _Cluster | None = None


def start(
    place: Place, timeout: float, facts: dict[str, str] | None = None, told: Any = None
) -> None:
    """Joins the other processes; before anything touches JAX's devices.

    Args:
      place: of this process, from `find_place`.
      timeout: seconds that the others may take to start, and later to move on.
      facts: what must be the same everywhere, by name.
      told: an event to set once this process has said why it ends.

    Raises:
      UserError: who is late, or disagrees and in what.
    """
    global _cluster
    import jax
    from jax._src import distributed

    hosts = meet(place, timeout, {"jax": jax.__version__, **(facts or {})})
    names = [f"process {i} of {len(hosts)} ({host})" for i, host in enumerate(hosts)]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # It would catch SIGTERM, and wait for a step at which all are asked to stop.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        place.coordinator,
        place.processes,
        place.process,
        local_device_ids=place.local_devices,
        cluster_detection_method="deactivate",
        initialization_timeout=int(timeout),
    )
    watchdog = Watchdog(names, place.process, timeout)
    _cluster = _Cluster(
        place, names, timeout, time.monotonic(), distributed.global_state.client, watchdog, told
    )
    for thread in (_watch, _watch_lead):
        threading.Thread(target=thread, args=(_cluster,), daemon=True).start()


def finish() -> None:
    """Leaves in the ordinary way, when all have done everything."""
    global _cluster
    if _cluster is None:
        return
    import jax

    barrier("the end")
    _cluster.ended.acquire()
    jax.distributed.shutdown()
    _cluster = None


def stop(reason: str, code: int = 1) -> NoReturn:
    """Ends this process at once; the others learn why within seconds, and end likewise."""
    cluster = _cluster
    if cluster is not None and not cluster.ended.acquire(blocking=False):
        time.sleep(cluster.timeout)  # another thread is ending this process
    sys.stdout.flush()
    print(f"scaling: {reason.rstrip('.')}.", file=sys.stderr, flush=True)
    if cluster is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # JAX's own logs would bury it
        if cluster.told is not None:
            cluster.told.set()
        # What follows asks process 0, which may never answer.
        late = threading.Timer(4 * cluster.poll_seconds, os._exit, (code,))
        late.daemon = True
        late.start()
        try:
            if not cluster.read(_END):  # the first reason is the one to tell
                cluster.publish(_END, [reason, code])
            if cluster.place.process == 0:  # who serves what the others have to read
                time.sleep(3 * cluster.poll_seconds)
        except Exception:  # process 0 is gone, so that nobody is left to be told
            pass
    os._exit(code)


def is_lead() -> bool:
    """Whether this process writes the books: process 0, or one that is alone."""
    return _cluster is None or _cluster.place.process == 0


def process_names() -> list[str]:
    """The processes that run the launch, as in "process 1 of 2 (HOST)"."""
    return ["process 0 of 1"] if _cluster is None else _cluster.names


def last_words() -> None:
    """After an error: gives the watchdog the time to say that it is due to another process."""
    if _cluster is None:
        return
    moment = 4 * _cluster.poll_seconds
    deadline = time.monotonic() + min(SILENCE_SECONDS, _cluster.timeout) + moment
    time.sleep(moment)
    while _cluster.watchdog.longest_silence() > 0.75 * moment and time.monotonic() < deadline:
        time.sleep(_cluster.poll_seconds)


def note(activity: str, step: int | None = None) -> None:
    """Says what this process begins; where nobody begins anything for too long, all are ended."""
    if _cluster is not None:
        life = _cluster.life
        step = life.step if step is None else step
        _cluster.life = Life(life.beat, life.moves + 1, activity, step)


def barrier(name: str, timeout: float | None = None) -> None:
    """Waits until all processes are here.

    Args:
      name: of this point, for people.
      timeout: seconds; by default those given to `start`.

    Raises:
      HostError: naming the processes that are late.
    """
    cluster = _cluster
    if cluster is None:
        return
    timeout = cluster.timeout if timeout is None else timeout
    before = cluster.life.activity
    note(f"waiting for {name}")
    cluster.barriers += 1
    try:
        cluster.publish(_AT, cluster.barriers)
        cluster.client.wait_at_barrier(f"scaling {cluster.barriers} {name}", int(timeout * 1000))
    except Exception as error:
        raise HostError(_why_not(cluster, name, timeout, error)) from error
    note(before)


def exchange(name: str, value: Any, timeout: float | None = None) -> list:
    """Every process's `value`, which JSON can hold, in the order of the processes.

    Raises:
      HostError: naming the processes that are late.
    """
    cluster = _cluster
    if cluster is None:
        return [value]
    cluster.exchanges += 1
    cluster.publish(f"{_SAID}{cluster.exchanges}/", value)
    barrier(name, timeout)
    said = cluster.read(f"{_SAID}{cluster.exchanges}/")
    if is_lead():  # as all are here, all have read what was said before
        cluster.client.key_value_delete(f"{_SAID}{cluster.exchanges - 1}/")
    return [said[process] for process in range(len(cluster.names))]


def decide(name: str, function: Callable[[], Any]) -> Any:
    """What process 0 finds, for all: only there is `function` called.

    Raises:
      UserError: `function` raised it; then it is raised everywhere.
      HostError: naming the processes that are late.
    """
    return each(name, function if is_lead() else lambda: None)[0]


def each(name: str, function: Callable[[], Any]) -> list:
    """What every process finds, for all.

    Raises:
      UserError: `function` raised it somewhere; then it is raised everywhere.
      HostError: naming the processes that are late.
    """
    cluster = _cluster
    if cluster is None:
        return [function()]
    try:
        answer = {"value": function()}
    except UserError as error:
        answer = {"error": str(error)}
    except OSError as error:  # a path that cannot be read or written
        if error.filename is None:
            raise
        answer = {"error": f"{error.filename}: {error.strerror}"}
    patience = cluster.timeout * LONG.get(cluster.life.activity, 1)
    answers = exchange(name, answer, patience)
    for process, answer in enumerate(answers):
        if "error" in answer:
            where = "" if process == 0 else f"{cluster.names[process]}: "
            raise UserError(where + answer["error"])
    return [answer["value"] for answer in answers]


def _why_not(cluster: _Cluster, name: str, timeout: float, error: Exception) -> str:
    """Who was late at a barrier, and else what JAX says."""
    try:
        reached = cluster.read(_AT)
    except Exception:  # process 0 serves it
        return f"{cluster.names[0]} cannot be reached; {RESUMES}"
    late = [other for i, other in enumerate(cluster.names) if reached.get(i, 0) < cluster.barriers]
    if not late:
        return f"the wait for {name!r} broke off ({_short(error)}); {RESUMES}"
    return f"{', '.join(late)} did not reach {name!r} within {timeout:g} s; {RESUMES}"


def _watch(cluster: _Cluster) -> None:
    """Says that this process lives, and ends it when the watchdog barks."""
    beat = 0
    while not cluster.ended.locked():
        time.sleep(cluster.poll_seconds)
        beat += 1
        try:
            cluster.publish(_LIFE, {**asdict(cluster.life), "beat": beat})
            lives = {i: Life(**said) for i, said in cluster.read(_LIFE).items()}
            reason, code = cluster.watchdog.judge(lives, cluster.read(_END))
            cluster.heard = time.monotonic()
        except Exception as error:
            reason = f"{cluster.names[0]} cannot be reached ({_short(error)}); {RESUMES}"
            code = 1
        if reason and not cluster.ended.locked():
            stop(reason, code)


def _watch_lead(cluster: _Cluster) -> None:
    """Ends this process when process 0 does not even answer, for which `_watch` waits."""
    limit = min(SILENCE_SECONDS, cluster.timeout) + 2 * cluster.poll_seconds
    while not cluster.ended.locked():
        time.sleep(cluster.poll_seconds)
        if time.monotonic() - cluster.heard > limit and not cluster.ended.locked():
            stop(f"{cluster.names[0]} has not answered for {limit:.0f} s; {RESUMES}")


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
