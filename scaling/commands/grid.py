"""What a grid will cost, before anything is trained."""

from pathlib import Path

from rich.console import Console

from scaling.cells import Cell
from scaling.console import make_table
from scaling.device import peak_flops
from scaling.display import duration
from scaling.flops import count_params, train_flops
from scaling.ledger import Ledger

# Of the devices' measured or listed peak, head included: what the CPU ladder's cells reach.
_ASSUMED_MFU = 0.35
_OVERHEAD_SECONDS = 30.0  # start, compile, look inside, validate; 20 to 40 in the demo


def print_grid(console: Console, cells: list[Cell], root: Path, jobs: int) -> None:
    """One line a cell: parameters, tokens, steps, FLOPs and an estimate of the time."""
    peak, ledger = peak_flops(), Ledger(root)
    columns = {"cell": "left"} | dict.fromkeys(
        ("params", "non-emb.", "tokens", "steps", "lr", "train FLOPs", "est. time", "state"),
        "right",
    )
    table, total = make_table("", columns), 0.0
    for cell in cells:
        n_params, n_non_embedding = count_params(cell.model)
        seconds = None
        if peak:
            work = train_flops(cell.model, cell.tokens, "with_head")
            seconds = work / (_ASSUMED_MFU * peak) + _OVERHEAD_SECONDS
        state = ledger.status(cell).kind
        if state != "done":
            total += seconds or 0.0
        table.add_row(
            cell.key,
            f"{n_params:,}",
            f"{n_non_embedding:,}",
            f"{cell.tokens:,}",
            f"{cell.steps:,}",
            f"{cell.train.learning_rate:.2g}",
            f"{cell.train_flops:.2e}",
            duration(seconds),
            state,
        )
    console.print(table, markup=False)
    flops = sum(cell.train_flops for cell in cells)
    console.print(
        f"{len(cells)} cells, {flops:.3g} FLOPs (convention train_flops), about "
        f"{duration(total if peak else None)} to go on this machine at {_ASSUMED_MFU:.0%} of its "
        f"peak with --jobs {jobs}.",
        highlight=False,
    )
