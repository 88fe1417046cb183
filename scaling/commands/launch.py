"""`scaling launch`: train the cells of a study that are not done yet."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def launch(
    study: Annotated[Path, typer.Argument(help="A study file, such as configs/demo.yaml.")],
    out: Annotated[Path, typer.Option(help="Where run directories go.")] = Path("runs"),
    size: Annotated[list[str] | None, typer.Option(help="Only this size; may be repeated.")] = None,
    variant: Annotated[
        list[str] | None, typer.Option(help="Only this variant; repeatable.")
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Only this seed; repeatable.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a field, as in train.learning_rate=3e-3."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Cells at a time; cores are shared out.")] = 1,
    dry_run: Annotated[
        bool, typer.Option(help="Print the grid and its cost; train nothing.")
    ] = False,
) -> None:
    """Train the grid of a study; finished cells are skipped and interrupted ones resumed."""
    from scaling.cells import expand
    from scaling.console import make_console
    from scaling.data import check
    from scaling.data.spec import parse_tokenizer
    from scaling.errors import UserError
    from scaling.study import load_study

    # A residual connection of one's own lies beside the study or here; workers inherit the path.
    sys.path[:0] = [str(study.parent.absolute()), os.getcwd()]
    loaded = load_study(study, set_ or [])
    check(loaded.data.source, loaded.data.tokenizer)
    vocab_size = parse_tokenizer(loaded.data.tokenizer).vocab_size
    try:
        cells = expand(loaded, vocab_size, size or [], variant or [], seed or [])
        whole = expand(loaded, vocab_size)
    except UserError as error:
        raise UserError(f"{study}: {error}") from error
    root, console = out / loaded.name, make_console()
    if dry_run:
        from scaling.commands.grid import print_grid

        print_grid(console, cells, root, jobs)
        return
    failed = _run(console, loaded.baseline, whole, cells, root, jobs)
    raise typer.Exit(1 if failed else 0)


def _run(console, baseline: str, whole: list, cells: list, root: Path, jobs: int) -> bool:
    """Runs `cells` of the `whole` grid; true if any failed."""
    from scaling.display import Display
    from scaling.errors import UserError
    from scaling.files import HeldError, lock
    from scaling.launch import run_grid
    from scaling.ledger import Ledger
    from scaling.results import write_results

    ledger, failed = Ledger(root), []
    try:
        with lock(ledger.lock_path()):
            ledger.check(whole)
            todo = _todo(console, ledger, cells)
            if todo:
                _prepare(console, ledger, todo)
            ledger.add(whole, baseline)
            try:
                if todo:
                    with Display(console, len(todo)) as display:
                        failed = run_grid(todo, ledger, jobs, display.listen)
            finally:
                results = write_results(ledger)
    except HeldError as holder:
        raise UserError(
            f"{root} is being run by {holder}; wait for it, or give another --out."
        ) from None
    except KeyboardInterrupt:
        console.print("Interrupted. The same command goes on from the last checkpoints.")
        raise typer.Exit(130) from None
    done = len(cells) - len(failed)
    console.print(f"{done} of {len(cells)} cells done, {len(failed)} failed; results in {results}")
    if not failed:
        console.print(f"Next: scaling fit {root}   scaling gap {root}   scaling plot {root}")
    return bool(failed)


def _todo(console, ledger, cells: list) -> list:
    """The cells that are not done, saying what was found damaged."""
    todo = []
    for cell in cells:
        record, problem = ledger.summary(cell)
        if problem:
            console.print(f"{cell.key}: {problem}.", markup=False)
        if record is None:
            todo.append(cell)
            note = ledger.status(cell).note
            if note.startswith("interrupted"):
                console.print(f"{cell.key}: {note}; resumes.", markup=False)
    if len(todo) < len(cells):
        console.print(f"{len(cells) - len(todo)} of {len(cells)} cells are done already; skipped.")
    return todo


def _prepare(console, ledger, todo: list) -> None:
    """Makes the data ready, and refuses or warns before anything trains."""
    from scaling.console import progress_bar
    from scaling.data import epochs, prepare, train_batches, validation_batches
    from scaling.errors import UserError

    spec = todo[0].data
    with progress_bar(console) as progress:
        corpus = prepare(spec.source, spec.tokenizer, progress=progress)
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
