"""`scaling status` and `scaling results`: what has become of a study's cells."""

import json
from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(help="A run directory, such as runs/demo.")]


def status(
    run: Run, as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False
) -> None:
    """Show every cell: pending, running (step, time left), done or failed (reason)."""
    from dataclasses import asdict

    from scaling.console import make_console, make_table
    from scaling.display import duration
    from scaling.ledger import Ledger

    ledger = Ledger(run)
    found = [(cell, ledger.status(cell)) for cell in ledger.cells()]
    if as_json:
        rows = [
            {"cell": cell.id, "size": cell.size, "variant": cell.variant, "seed": cell.seed,
             "steps": cell.steps, **asdict(state)}
            for cell, state in found
        ]  # fmt: skip
        typer.echo(json.dumps(rows, indent=2))
        return
    columns = {"cell": "left", "state": "left", "step": "right", "left": "right", "note": "left"}
    table = make_table(str(run), columns)
    for cell, state in found:
        left = duration(state.seconds_left) if state.kind == "running" else ""
        table.add_row(cell.key, state.kind, f"{state.step}/{cell.steps}", left, state.note)
    console = make_console()
    console.print(table, markup=False)
    counts = {kind: sum(s.kind == kind for _, s in found) for kind in
              ("done", "running", "pending", "failed")}  # fmt: skip
    console.print(", ".join(f"{n} {kind}" for kind, n in counts.items()))


def results(run: Run) -> None:
    """(Re)write results.csv from the cells' summaries; show losses and paired differences."""
    from scaling.ledger import Ledger
    from scaling.results import write_results

    path = write_results(Ledger(run))
    _show_losses(run)
    typer.echo(path)


def _show_losses(run: Path, level: float = 0.95) -> None:
    """Every variant's mean loss, and its difference to the baseline's."""
    from analysis import Refusal, differences, load, render
    from scaling.commands.report import labels_of, print_rows, say

    baseline = labels_of(run)["baseline"]
    try:
        df = load(run)
    except Refusal as reason:
        if reason.code != "no-finished-runs":
            raise
        say([str(reason)])
        return
    rows = differences(df, baseline, level)
    print_rows("", render.difference_rows(rows, baseline))
    say(render.difference_notes(rows, df, baseline, level))
