"""Runs a grid of cells on worker processes and keeps the books."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

from scaling.cells import Cell
from scaling.errors import UserError
from scaling.ledger import Ledger
from scaling.memory import keep_memory
from scaling.worker import work

# (cell, kind, payload): "start", "step", "done" or "failed".
Listener = Callable[[Cell, str, dict | str], None]

_POLL_SECONDS = 0.5


@dataclass
class _Worker:
    process: multiprocessing.Process
    connection: multiprocessing.connection.Connection
    cores: set[int] | None
    cell: Cell | None = None


def check_here(cells: list[Cell], root: Path) -> None:
    """Makes sure that cells can be trained on the devices here, which only a worker may touch.

    Raises:
      UserError: one cannot.
    """
    worker = _start(multiprocessing.get_context("spawn"), root, None)
    try:
        worker.connection.send(cells)
        kind, refusal = _receive(worker)
        if kind == "checked" and refusal:
            raise UserError(refusal)
    finally:
        worker.process.terminate()
        worker.process.join()


def run_grid(
    cells: list[Cell], ledger: Ledger, jobs: int, listen: Listener, say: Callable[[str], None]
) -> list[Cell]:
    """Runs cells, `jobs` at a time, and returns those that failed.

    Args:
      cells: in the order to start them.
      ledger: the study's run directory, whose lock the caller holds.
      jobs: worker processes; each gets an equal share of the CPU cores.
      listen: told of everything that happens.
      say: told, once each, what a person should know.
    """
    context = multiprocessing.get_context("spawn")
    keep_memory()
    waiting, failed, said = list(cells), [], set()
    # The share of cores follows from `jobs` alone: it sets the order of some sums, hence the bits.
    shares = _shares(jobs)[: len(cells)]
    workers = [_start(context, ledger.root, cores) for cores in shares]
    # A KeyboardInterrupt may come up, and be lost, in a callback of the garbage collector.
    interrupted = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        for worker in workers:
            _assign(worker, waiting, listen)
        while busy := [worker for worker in workers if worker.cell]:
            ready = wait([worker.connection for worker in busy], timeout=_POLL_SECONDS)
            if interrupted.is_set():
                raise KeyboardInterrupt
            for worker in busy:
                if worker.connection not in ready:
                    continue
                cell = worker.cell
                kind, payload = _receive(worker)
                if kind == "note":
                    if payload not in said:
                        said.add(payload)
                        say(payload)
                    continue
                if kind == "died":
                    kind = "failed"
                    with contextlib.suppress(OSError):  # a full disk must not stop the grid
                        ledger.write_failure(cell, payload)
                    workers[workers.index(worker)] = worker = _start(
                        context, ledger.root, worker.cores
                    )
                listen(cell, kind, payload)
                if kind == "failed":
                    failed.append(cell)
                if kind in ("done", "failed"):
                    _assign(worker, waiting, listen)
    finally:
        signal.signal(signal.SIGINT, before)
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.join()
    return failed


def _start(context, root: Path, cores: set[int] | None) -> _Worker:
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, root, cores), daemon=True)
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the launcher's to handle
    process.start()
    signal.signal(signal.SIGINT, ignored)
    theirs.close()
    return _Worker(process, ours, cores)


def _assign(worker: _Worker, waiting: list[Cell], listen: Listener) -> None:
    worker.cell = waiting.pop(0) if waiting else None
    if worker.cell:
        listen(worker.cell, "start", "")
        worker.connection.send(worker.cell)


def _receive(worker: _Worker) -> tuple[str, dict | str]:
    """The worker's next message, or ("died", why) when there will be none."""
    try:
        return worker.connection.recv()
    except (EOFError, OSError):
        worker.process.join()
        code = worker.process.exitcode
        how = f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return "died", f"its process was {how}" if code < 0 else f"its process {how}"


def _shares(jobs: int) -> list[set[int] | None]:
    """The cores for each worker; None means all of them."""
    if jobs == 1 or not hasattr(os, "sched_getaffinity"):  # macOS pins no process to a core
        return [None] * jobs
    cores = sorted(os.sched_getaffinity(0))
    return [set(cores[i::jobs]) or set(cores) for i in range(jobs)]
