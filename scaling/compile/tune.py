"""The fastest step that fits, over the number of micro-batches and what is recomputed.

The step's time is that of all its micro-batches. More of them need less memory and are not faster,
and so does recomputing: when a step without it fits, the search ends, and while one with it fits,
only steps without it are tried in smaller micro-batches.
"""

from collections.abc import Callable

from scaling.cells import Cell
from scaling.compile.build import compile_cell
from scaling.compile.report import amount, is_good
from scaling.console import make_table
from scaling.sharding import resolve_mesh

REMATS = ("none", "layer", "block")


def candidates(cell: Cell, n_devices: int) -> list[tuple[int, str]]:
    """(accumulate, remat) to try: what divides the batch and still splits over the devices."""
    found = []
    for accumulate in range(1, cell.train.batch_size + 1):
        if cell.train.batch_size % accumulate == 0 and _splits(cell, accumulate, n_devices):
            found += [(accumulate, remat) for remat in REMATS]
    return found


def _splits(cell: Cell, accumulate: int, n_devices: int) -> bool:
    rows = cell.train.batch_size // accumulate
    mesh = resolve_mesh(cell, n_devices)  # as the study means it, not remade for this micro-batch
    return rows % (mesh.data * mesh.fsdp) == 0


def with_settings(cell: Cell, accumulate: int, remat: str, n_devices: int) -> Cell:
    """The cell with other settings, on the mesh that it has now."""
    return cell.model_copy(
        update={
            "train": cell.train.model_copy(update={"accumulate": accumulate}),
            "model": cell.model.model_copy(update={"remat": remat}),
            "mesh": resolve_mesh(cell, n_devices),
        }
    )


def tune_cell(
    cell: Cell,
    devices: list,
    say: Callable[[str], None],
    build: Callable[[Cell, list], dict] = compile_cell,
) -> tuple[dict, dict]:
    """(row of the best, or of the last tried where none fits; what was tried).

    What was tried: cell, tried (accumulate, remat, fits, peak, seconds, compile_seconds and error
    of each) and settings (the `--set` words of the best, null where none fits).
    """
    rows: list[dict] = []
    for accumulate, remat in candidates(cell, len(devices)):
        if any(_needless(accumulate, remat, row) for row in rows):
            continue
        say(f"train.accumulate={accumulate} model.remat={remat} ...")
        rows.append(build(with_settings(cell, accumulate, remat, len(devices)), devices))
    fitting = [row for row in rows if is_good(row)]
    best = min(fitting, key=speed, default=rows[-1])
    settings = [f"train.accumulate={best['accumulate']}", f"model.remat={best['remat']}"]
    keys = ("accumulate", "remat", "fits", "seconds", "compile_seconds", "error")
    tried = [{key: row.get(key) for key in keys} | {"peak": row.get("memory", {}).get("peak")}
             for row in rows]  # fmt: skip
    return best, {"cell": cell.key, "tried": tried, "settings": settings if fitting else None}


def speed(row: dict) -> tuple:
    """What the fastest has least of: seconds, or without them FLOPs and then bytes."""
    return (row["seconds"] or 0.0, row["flops"], row["bytes"])


def _needless(accumulate: int, remat: str, row: dict) -> bool:
    """Whether a row that fits is at least as fast as other settings would be."""
    if not is_good(row):
        return False
    return row["remat"] == "none" or (remat != "none" and accumulate > row["accumulate"])


def print_tuned(console, document: dict) -> None:
    """A table of what was tried, and the winner's settings."""
    columns = {"cell": "left", "accumulate": "right", "remat": "left"} | dict.fromkeys(
        ("peak GB", "fits", "ms", "built"), "right"
    )
    table = make_table("Tried", columns)
    for tuned in document["tune"]:
        for row in tuned["tried"]:
            fits = row["error"] or {True: "yes", False: "no", None: "?"}[row["fits"]]
            table.add_row(
                tuned["cell"], str(row["accumulate"]), row["remat"], amount(row["peak"], 1e9),
                fits, amount(row["seconds"], 1e-3), f"{row['compile_seconds']:.0f} s",
            )  # fmt: skip
    console.print(table, markup=False)
    for tuned in document["tune"]:
        if tuned["settings"]:
            words = " ".join(f"--set {setting}" for setting in tuned["settings"])
            console.print(f"{tuned['cell']}: {words}", markup=False)
        else:
            console.print(f"{tuned['cell']}: nothing that was tried fits.", markup=False)
