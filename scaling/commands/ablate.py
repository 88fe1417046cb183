"""`scaling ablate-sources`: what the loss becomes without a source of depth attention."""

import json
import math
from pathlib import Path
from typing import Annotated, Literal

import typer

from scaling.commands.options import Sizes, Variants
from scaling.errors import UserError

MOST = 3  # sources of a line


def ablate_sources(
    run: Annotated[Path, typer.Argument(help="A run directory, such as runs/demo.")],
    size: Sizes = None,
    variant: Variants = None,
    seed: Annotated[list[int] | None, typer.Option(help="Only this seed; repeatable.")] = None,
    mode: Annotated[
        Literal["remove", "average"] | None,
        typer.Option(help="Only this way of taking a source away.", show_default="both"),
    ] = None,
    tokens: Annotated[
        int, typer.Option(min=1, help="Validation tokens to measure on, in whole batches.")
    ] = 8192,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Measure how the validation loss changes when reads go without one of their sources.

    Of every finished cell with attention over depth: each source is removed from each read (the
    others get its weight; sigmoids keep theirs) or replaced there by its mean over tokens, then in
    all reads of a site at once. Writes ablation.parquet beside each cell's metrics, and replaces
    what it has of the same mode. About a minute a cell at the sizes of the demo.
    """
    from scaling.ablate import ablate, ablated_cells
    from scaling.console import make_console, progress_bar
    from scaling.ledger import Ledger

    cells = ablated_cells(run, size, variant, seed)
    modes = (mode,) if mode else ("remove", "average")
    found, failed = [], []
    with progress_bar(make_console(stderr=True)) as show:
        for cell in cells:
            progress = lambda done, total, key=cell.key: show(key, done, total)  # noqa: E731
            try:
                found.append((cell, ablate(cell, run, modes, tokens, progress)))
            except UserError as error:  # the others are measured all the same
                failed.append(str(error))
    folders = [Ledger(run).directory(cell) for cell, _ in found]
    if as_json:
        paths = [str(folder / "ablation.parquet") for folder in folders]
        document = {cell.key: _plain(rows.to_pylist()) for cell, rows in found}
        told = {"cells": document, "written": paths, "failed": failed}
        typer.echo(json.dumps(told, allow_nan=False))
    elif found:
        _print(make_console(), found)
        if not all((folder / "dynamics.parquet").is_file() for folder in folders):
            typer.echo("plot and report draw the map only of cells that have a dynamics.parquet.")
    if failed:
        raise UserError(" ".join(failed))


def _plain(rows: list[dict]) -> list[dict]:
    """With null where a loss was not finite: JSON has no NaN."""
    return [row | {"delta": row["delta"] if math.isfinite(row["delta"]) else None} for row in rows]


def _print(console, found) -> None:
    """The sources that matter most to each cell, taken from all its reads at once."""
    from analysis.dynamics import source_names
    from scaling.ablate import sources_of
    from scaling.console import make_table

    columns = {"cell": "left", "mode": "left", "nats without a source in any read": "left"}
    table = make_table("", columns)
    for cell, rows in found:
        last = max(source for read in sources_of(cell.model) for source in read)
        names = source_names(last + 1, cell.model.n_sublayers)
        together = [
            row
            for row in rows.to_pylist()
            if row["sublayer"] == -1 and not row["site"] and math.isfinite(row["delta"])
        ]
        for mode in dict.fromkeys(row["mode"] for row in together):
            of_mode = [row for row in together if row["mode"] == mode]
            most = sorted(of_mode, key=lambda row: -abs(row["delta"]))[:MOST]
            told = ", ".join(f"{names[row['source']]} {row['delta']:+.3f}" for row in most)
            table.add_row(cell.key, mode, told)
    console.print(table)
    counts = sorted({n for _, rows in found for n in rows["tokens"].to_pylist()})
    on = " or ".join(f"{n:,}" for n in counts)
    console.print(
        f"The {MOST} sources that matter most, on {on} validation tokens. Every read by itself is "
        "in ablation.parquet, beside each cell's metrics."
    )
