"""Finished cells of a run directory, and their weights."""

from pathlib import Path

from scaling import checkpoint
from scaling.cells import Cell
from scaling.data import Corpus
from scaling.errors import UserError, closest
from scaling.ledger import Ledger
from scaling.step import Program


def trained_cells(
    run: Path,
    sizes: list[str] | None = None,
    variants: list[str] | None = None,
    seeds: list[int] | None = None,
) -> list[Cell]:
    """The finished cells of a run directory.

    Raises:
      UserError: the directory holds no study, has no cell of a name given, or none is finished.
    """
    ledger = Ledger(run)
    cells = ledger.cells()
    for field, wanted in (("size", sizes), ("variant", variants), ("seed", seeds)):
        known = {getattr(cell, field) for cell in cells}
        for name in wanted or []:
            if name not in known:
                raise UserError(f"{run} has no {field} {name!r}; {closest(name, known)}")
        cells = [cell for cell in cells if not wanted or getattr(cell, field) in wanted]
    done = [cell for cell in cells if ledger.status(cell).kind == "done"]
    if not done:
        raise UserError(f"none of the {len(cells)} cells asked for in {run} is finished.")
    return done


def trained_params(program: Program, run: Path, corpus: Corpus) -> dict:
    """The weights that a finished cell ended with, laid out as `program` says.

    Raises:
      UserError: its checkpoint is gone, damaged or of another model, or `corpus` is not what it
        was trained on.
    """
    cell = program.cell
    folder = Ledger(run).directory(cell) / "checkpoints"
    try:
        restored = checkpoint.restore(folder, program.state_shapes, clean=False)
    except checkpoint.MismatchError as error:
        raise UserError(f"{folder} is of another model: {error}") from error
    if restored is None:
        raise UserError(f"{folder} holds no intact checkpoint.")
    _, state, extra = restored
    if extra["data_fingerprint"] != corpus.fingerprint:
        raise UserError(
            f"{cell.key} was trained on data {extra['data_fingerprint']}, but the data are now "
            f"{corpus.fingerprint}."
        )
    return state["params"]
