"""From what is left of a study to its results; on several hosts, all do this side by side."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scaling import multihost
from scaling.cells import Cell
from scaling.console import progress_bar
from scaling.data import Corpus, epochs, prepare, train_batches, validation_batches
from scaling.display import Display
from scaling.errors import UserError
from scaling.files import HeldError, lock
from scaling.launch import Listener, check_here, run_grid
from scaling.ledger import Ledger
from scaling.results import write_results
from scaling.tracking import Tracking

# (cells, ledger, corpus, listen) -> the cells that failed.
RunCells = Callable[[list[Cell], Ledger, Corpus, Listener], list[Cell]]


@dataclass(frozen=True)
class Job:
    """What a launch is to do, on all hosts together."""

    baseline: str  # label of the variant that the others are compared with
    whole: list[Cell]  # the study's grid
    cells: list[Cell]  # of it, those that are asked for
    root: Path  # the run directory
    next: tuple[str, ...] = ()  # commands that such a study supports
    trackers: tuple[str, ...] = ()  # that are told of every run


def run_study(console, job: Job, check: Callable[[list[Cell]], None], run_cells: RunCells) -> bool:
    """Trains those of the job's cells that are not done, by `run_cells`; true if any failed.

    Before it reads data or writes anything, `check` may refuse the cells.

    Raises:
      UserError: another launch holds the directory, or cells, devices or data do not fit.
      HostError: another host is late or gone.
    """
    ledger, cells, failed = Ledger(job.root), job.cells, []
    with contextlib.ExitStack() as held:
        multihost.decide("the study's lock", lambda: _hold(held, ledger))
        left = multihost.decide(
            "the cells to run", lambda: _left(console, ledger, job.whole, cells)
        )
        todo = [cell for cell in cells if cell.id in set(left)]
        if todo:
            check(todo)
        corpus = _prepare(console, ledger, todo) if todo else None
        multihost.decide("the grid", lambda: ledger.add(job.whole, job.baseline))
        try:
            if todo:
                with Display(console, len(todo)) as display:
                    listen = _listeners(console, job, ledger, display.listen)
                    failed = run_cells(todo, ledger, corpus, listen)
        finally:
            if multihost.is_lead():
                results = write_results(ledger)
    if multihost.is_lead():
        done = len(cells) - len(failed)
        told = f"{done} of {len(cells)} cells done, {len(failed)} failed; results in {results}"
        console.print(told)
        if job.next and not failed:
            for number, name in enumerate(job.next):
                console.print(f"{'      ' if number else 'Next: '}scaling {name} {job.root}")
    return bool(failed)


def _listeners(console, job: Job, ledger: Ledger, show: Listener) -> Listener:
    if not (job.trackers and multihost.is_lead()):
        return show
    tracking = Tracking(list(job.trackers), ledger, lambda note: console.print(note, markup=False))

    def listen(cell: Cell, kind: str, payload) -> None:
        show(cell, kind, payload)
        tracking.listen(cell, kind, payload)

    return listen


def run_here(console, job: Job, n_jobs: int) -> bool:
    """`run_study` on this host, `n_jobs` cells at a time."""

    def run_cells(cells, ledger, corpus, listen):
        return run_grid(
            cells, ledger, n_jobs, listen, lambda note: console.print(note, markup=False)
        )

    try:
        return run_study(console, job, lambda cells: check_here(cells, job.root), run_cells)
    except KeyboardInterrupt:
        console.print("Interrupted. The same command goes on from the last checkpoints.")
        raise


def _hold(held: contextlib.ExitStack, ledger: Ledger) -> None:
    try:
        held.enter_context(lock(ledger.lock_path()))
    except HeldError as holder:
        raise UserError(
            f"{ledger.root} is being run by {holder}; wait for it, or give another --out."
        ) from None


def _left(console, ledger: Ledger, whole: list[Cell], cells: list[Cell]) -> list[str]:
    """The ids of the cells that are not done, saying what was found damaged."""
    ledger.check(whole)
    left = []
    for cell in cells:
        record, problem = ledger.summary(cell)
        if problem:
            console.print(f"{cell.key}: {problem}.", markup=False)
        if record is None:
            left.append(cell.id)
            note = ledger.status(cell).note
            if note.startswith("interrupted"):
                console.print(f"{cell.key}: {note}; resumes.", markup=False)
    if len(left) < len(cells):
        console.print(f"{len(cells) - len(left)} of {len(cells)} cells are done already; skipped.")
    return left


def _prepare(console, ledger: Ledger, todo: list[Cell]) -> Corpus:
    """Makes the data ready on every host, and refuses or warns before anything trains."""
    spec, found = todo[0].data, []

    def fingerprint() -> str:
        with progress_bar(console) as progress:
            found.append(prepare(spec.source, spec.tokenizer, progress=progress))
        return found[0].fingerprint

    multihost.note("data")
    first, *others = multihost.each("the data", fingerprint)
    multihost.note("start")
    for process, other in enumerate(others, 1):
        if other != first:
            raise UserError(
                f"{multihost.process_names()[process]} has data {other} of {spec.source}, but "
                f"process 0 has {first}; give every host the same data."
            )
    multihost.decide("the data checked", lambda: _check(console, ledger, todo, found[0]))
    return found[0]


def _check(console, ledger: Ledger, todo: list[Cell], corpus: Corpus) -> None:
    """Refuses or warns where the data do not fit what was trained, or is to be trained, on them."""
    spec = todo[0].data
    console.print(
        f"data {spec.source}: {len(corpus.train):,} training tokens, "
        f"fingerprint {corpus.fingerprint}",
        highlight=False,
    )
    for cell in ledger.known():
        record, _ = ledger.summary(cell)
        if record and record["data_fingerprint"] != corpus.fingerprint:
            raise UserError(
                f"{cell.key} was trained on data {record['data_fingerprint']}, but "
                f"{spec.source} now is {corpus.fingerprint}; losses on different data cannot be "
                "compared. Give another --out to start afresh on the new data."
            )
    for batch_size in {cell.train.batch_size for cell in todo}:
        shape = {"seq_len": spec.seq_len, "batch_size": batch_size}
        train_batches(corpus, **shape, seed=0)
        validation_batches(corpus, **shape, n_tokens=spec.validation_tokens)
    repeated = {cell.size: epochs(corpus, cell.tokens) for cell in todo}
    over = {size: n for size, n in repeated.items() if n > 1}
    if over:
        listed = ", ".join(f"{size} {n:.1f}" for size, n in over.items())
        console.print(
            f"Warning: these sizes read the training data more than once (epochs: {listed}); "
            "repeated data bend a scaling law.",
            style="yellow",
        )
