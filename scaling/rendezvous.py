"""How the processes of one launch find each other, before JAX starts.

JAX aborts a process whose coordinator is absent, and trains on where two processes believe in
different numbers of processes. Here they meet first, on the coordinator's own port: each says who
it is and what it is about to run, and process 0 answers all of them with the names of the hosts or
with the reason why not.
"""

import contextlib
import json
import socket
import time

from scaling.errors import UserError
from scaling.places import Place

_RETRY_SECONDS = 0.2
_PATIENCE_SECONDS = 5.0  # with one that has connected


def meet(place: Place, timeout: float, facts: dict[str, str]) -> list[str]:
    """Host names of all processes, in their order, once all are there and agree.

    Args:
      place: of this process.
      timeout: seconds to wait for the others.
      facts: what must be the same everywhere, by name.

    Raises:
      UserError: on all that were reached: who is late, who disagrees and in what.
    """
    hello = {
        "process": place.process,
        "processes": place.processes,
        "host": socket.gethostname(),
        "facts": facts,
    }
    deadline = time.monotonic() + timeout
    answer = (_receive if place.process == 0 else _call)(place, hello, deadline, timeout)
    if "error" in answer:
        raise UserError(answer["error"])
    return answer["hosts"]


def _receive(place: Place, hello: dict, deadline: float, timeout: float) -> dict:
    """Process 0: collects who calls, and answers all of them at once."""
    present, connections, answer = {0: hello}, [], None
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(_serve(place))
        while answer is None and len(present) < place.processes:
            server.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                answer = {"error": _late(place, present, timeout)}
                break
            stack.enter_context(connection)
            caller = _read(connection)
            if caller and hello.keys() <= caller.keys():
                connections.append(connection)
                answer = _objection(place, present, caller)
                present.setdefault(caller["process"], caller)
        answer = answer or {"hosts": [present[i]["host"] for i in range(place.processes)]}
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.sendall(json.dumps(answer).encode() + b"\n")
        for connection in connections:  # they hang up first, which leaves the port free for JAX
            with contextlib.suppress(OSError):
                connection.settimeout(_PATIENCE_SECONDS)
                connection.recv(1)
    return answer


def _call(place: Place, hello: dict, deadline: float, timeout: float) -> dict:
    """The others: call process 0 until it answers."""
    host, _, port = place.coordinator.rpartition(":")
    problem = "no answer"
    while (left := deadline - time.monotonic()) > 0:
        try:
            address = (host.strip("[]"), int(port))
            with socket.create_connection(address, timeout=left) as connection:
                connection.sendall(json.dumps(hello).encode() + b"\n")
                if answer := _read(connection, left + _PATIENCE_SECONDS):
                    return answer
        except OSError as error:
            problem = error.strerror or str(error)
        time.sleep(_RETRY_SECONDS)
    return {
        "error": f"process {place.process} of {place.processes} could not reach process 0 at "
        f"{place.coordinator} within {timeout:g} s ({problem}); start the same command there as "
        "process 0, and check the address and the firewall."
    }


def _serve(place: Place) -> socket.socket:
    port = int(place.coordinator.rpartition(":")[2])
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=place.processes
            )
        return socket.create_server(("", port), backlog=place.processes)
    except OSError as error:
        raise UserError(
            f"process 0 cannot listen on port {port} of {place.coordinator} ({error.strerror}); "
            "free it, or give all processes another port."
        ) from error


def _read(connection: socket.socket, patience: float = _PATIENCE_SECONDS) -> dict | None:
    """One line of JSON, or None where something else speaks or nothing comes."""
    connection.settimeout(patience)
    with contextlib.suppress(OSError, ValueError), connection.makefile("rb") as file:
        said = json.loads(file.readline(2**20))
        if isinstance(said, dict):
            return said
    return None


def _objection(place: Place, present: dict[int, dict], caller: dict) -> dict | None:
    """What is wrong with who calls; None where it belongs."""
    process, host = caller["process"], caller["host"]
    if caller["processes"] != place.processes:
        return {
            "error": f"process {process} ({host}) was started as one of {caller['processes']}, but "
            f"process 0 ({present[0]['host']}) as one of {place.processes}; give every process the "
            "same --processes."
        }
    if process in present:
        return {
            "error": f"there are two processes {process}, on {present[process]['host']} and "
            f"{host}; give every process a --process-id of its own."
        }
    for name, ours in present[0]["facts"].items():
        if (theirs := caller["facts"].get(name)) != ours:
            return {
                "error": f"process {process} of {place.processes} ({host}) has {name} {theirs}, "
                f"but process 0 has {ours}; give every host the same packages, study and flags."
            }
    return None


def _late(place: Place, present: dict[int, dict], timeout: float) -> str:
    absent = [str(i) for i in range(place.processes) if i not in present]
    word = "process" if len(absent) == 1 else "processes"
    return (
        f"{word} {', '.join(absent)} of {place.processes} did not start within {timeout:g} s; "
        "run the same command on every host."
    )
