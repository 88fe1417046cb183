"""A process that runs cells one after another, so that JAX starts once and a crash stays inside."""

import contextlib
import os
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path

from scaling.cells import Cell

_REPORT_SECONDS = 0.25


def work(connection: Connection, root: Path, cores: set[int] | None) -> None:
    """Receives cells for as long as the launcher lives; answers each with "done" or "failed".

    A list of cells is only checked, and answered with "checked" and what is wrong or "".

    Args:
      connection: to the launcher; messages out are (kind, payload).
      root: the study's run directory.
      cores: the CPU cores to stay on, so that workers side by side do not crowd each other.
    """
    threading.Thread(target=die_with_parent, daemon=True).start()
    if cores:
        os.sched_setaffinity(0, cores)  # before JAX counts them for its thread pool
    configure_jax()
    while True:
        match connection.recv():
            case list(cells):
                connection.send(("checked", _refusal(cells)))
            case cell:
                connection.send(_attempt(cell, root, connection))


def _refusal(cells: list[Cell]) -> str:
    """Why these cells cannot be trained on the devices here, or ""."""
    import jax

    from scaling.errors import UserError
    from scaling.sharding import check

    try:
        check(cells, jax.devices())
    except UserError as error:
        return str(error)
    return ""


def die_with_parent() -> None:
    """A launcher that was killed must not leave a worker that goes on writing."""
    wait([parent_process().sentinel])
    os._exit(1)


def configure_jax() -> None:
    """Compiled programs are kept for the next launch."""
    import jax

    from scaling.data.cache import cache_root

    if not jax.config.jax_compilation_cache_dir:
        jax.config.update("jax_compilation_cache_dir", str(cache_root() / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _attempt(cell: Cell, root: Path, connection: Connection) -> tuple[str, str]:
    from scaling.data import prepare
    from scaling.device import mfu_note
    from scaling.errors import UserError
    from scaling.files import HeldError, lock
    from scaling.ledger import Ledger
    from scaling.run import CellFailedError, run_cell

    ledger = Ledger(root)

    def say(note: str) -> None:
        connection.send(("note", note))

    try:
        with lock(ledger.lock_path(cell)):
            try:
                corpus = prepare(cell.data.source, cell.data.tokenizer)
                if note := mfu_note():
                    say(note)
                report = throttled(lambda event: connection.send(("step", event)))
                run_cell(cell, ledger, corpus, report, say)
                return "done", ""
            except BrokenPipeError:  # the launcher is gone; the cell was interrupted, not failed
                os._exit(1)
            except (CellFailedError, UserError) as error:
                reason = str(error)
            except Exception as error:  # one broken cell must not stop the grid
                with contextlib.suppress(OSError):
                    log = ledger.directory(cell) / "error.log"
                    log.write_text(traceback.format_exc(), encoding="utf-8")
                reason = in_short(error)
            with contextlib.suppress(OSError):  # a full disk must not stop the grid
                ledger.write_failure(cell, reason)
            return "failed", reason
    except HeldError as error:
        return "failed", f"held by {error}"


def in_short(error: Exception) -> str:
    """An unexpected error on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def throttled(report: Callable[[dict], None]) -> Callable[[dict], None]:
    """`report`, called at most a few times a second."""
    last = 0.0

    def sometimes(event: dict) -> None:
        nonlocal last
        if time.monotonic() - last >= _REPORT_SECONDS:
            last = time.monotonic()
            report(event)

    return sometimes
