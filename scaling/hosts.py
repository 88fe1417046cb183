"""Runs a study on several hosts: in each process the same cells, one after another.

What trains is a child of the command. JAX's own service aborts a process whose coordinator is gone;
the command then still says so and ends with exit code 1.
"""

import contextlib
import hashlib
import multiprocessing
import os
import secrets
import signal
import sys
import threading
import time
import traceback
from functools import partial
from pathlib import Path

import jax
from rich.console import Console

from scaling import multihost
from scaling.cells import Cell
from scaling.console import make_console
from scaling.data import Corpus
from scaling.device import mfu_note
from scaling.errors import UserError
from scaling.files import HeldError, lock
from scaling.launch import Listener
from scaling.ledger import Ledger
from scaling.memory import keep_memory
from scaling.places import Place
from scaling.run import CellFailedError, run_cell
from scaling.run_study import Job, run_study
from scaling.sharding import check
from scaling.version import code_version
from scaling.watchdog import RESUMES
from scaling.worker import configure_jax, die_with_parent, in_short, throttled

_VISIBLE_SECONDS = 20.0  # network file systems show other hosts' files with a delay


def run_on_host(place: Place, timeout: float, job: Job) -> int:
    """Runs this process's part of a job to its end, and returns the exit code."""
    keep_memory()
    context = multiprocessing.get_context("spawn")
    told = context.Event()
    child = context.Process(target=_part, args=(place, timeout, job, told))
    child.start()
    # Ctrl-C reaches the child by itself, a signal to this process alone does not.
    signal.signal(signal.SIGINT, lambda *_: os.kill(child.pid, signal.SIGINT))
    child.join()
    if child.exitcode >= 0:
        return child.exitcode
    if told.is_set():  # JAX was quicker to end it, but not to say why
        return 1
    how = f"killed by signal {-child.exitcode}"
    if child.exitcode == -signal.SIGABRT and place.process > 0:
        how = "ended by JAX (signal 6), as when process 0 is gone"
    name = f"process {place.process} of {place.processes}"
    print(f"scaling: {name} was {how}; {RESUMES}.", file=sys.stderr)
    return 1


def _part(place: Place, timeout: float, job: Job, told) -> None:
    threading.Thread(target=die_with_parent, daemon=True).start()
    cells = "".join(cell.model_dump_json() for cell in job.cells)
    facts = {"code": code_version(), "grid": hashlib.sha256(cells.encode()).hexdigest()[:12]}
    try:
        multihost.start(place, timeout, facts, told)
        configure_jax()
        console = make_console()
        if not multihost.is_lead():
            names = multihost.process_names()
            console.print(f"{names[place.process]} takes part; {names[0]} tells how it goes.")
            console = Console(quiet=True)
        _check_shared(job.root, timeout)

        def run_cells(cells, ledger, corpus, listen):
            return _run_cells(cells, ledger, corpus, listen, console)

        failed = run_study(console, job, lambda cells: check(cells, jax.devices()), run_cells)
        multihost.finish()
    except UserError as error:
        multihost.stop(str(error), 2)
    except multihost.HostError as error:
        multihost.stop(str(error))
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it may come twice
        multihost.stop(f"interrupted; {RESUMES}", 130)
    except Exception as error:
        multihost.last_words()
        traceback.print_exc()
        multihost.stop(f"{in_short(error)}; {RESUMES}")
    raise SystemExit(1 if failed else 0)


def _run_cells(
    cells: list[Cell], ledger: Ledger, corpus: Corpus, listen: Listener, console: Console
) -> list[Cell]:
    """Trains cells on all devices of all hosts, and returns those that failed."""
    failed = []

    def say(note: str) -> None:
        console.print(note, markup=False)

    if note := mfu_note():
        say(note)
    for cell in cells:
        report = throttled(lambda event, cell=cell: listen(cell, "step", event))
        listen(cell, "start", "")
        with contextlib.ExitStack() as held:
            try:
                multihost.decide(f"the lock of {cell.key}", partial(_hold, held, ledger, cell))
                run_cell(cell, ledger, corpus, report, say)
                listen(cell, "done", "")
            except (CellFailedError, UserError) as error:  # on all hosts alike
                ledger.write_failure(cell, str(error))
                failed.append(cell)
                listen(cell, "failed", str(error))
            except multihost.HostError:
                raise
            except Exception as error:  # one broken cell must not stop the grid
                multihost.last_words()
                multihost.exchange(f"the error of {cell.key}", None)  # if it is all hosts' error
                traceback.print_exc()
                ledger.write_failure(cell, in_short(error))
                failed.append(cell)
                listen(cell, "failed", in_short(error))
    return failed


def _hold(held: contextlib.ExitStack, ledger: Ledger, cell: Cell) -> None:
    try:
        held.enter_context(lock(ledger.lock_path(cell)))
    except HeldError as holder:
        raise UserError(f"held by {holder}") from None


def _check_shared(root: Path, timeout: float) -> None:
    """Makes sure that all hosts see the same run directory.

    Raises:
      UserError: one does not.
    """

    def write() -> str:
        root.mkdir(parents=True, exist_ok=True)
        name = f".hosts-{secrets.token_hex(8)}"
        (root / name).touch()
        return name

    path = root / multihost.decide("the run directory", write)

    def look() -> None:
        deadline = time.monotonic() + min(_VISIBLE_SECONDS, timeout / 2)
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if path.name in os.listdir(root):  # which asks the server anew, unlike a stat
                    return
            time.sleep(0.2)
        raise UserError(
            f"{root.absolute()} is not the folder that process 0 sees: give an --out on a file "
            "system that all hosts share"
        )

    try:
        multihost.each("the run directory on every host", look)
    finally:
        if multihost.is_lead():
            path.unlink()
