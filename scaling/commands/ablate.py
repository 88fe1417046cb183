"""`scaling ablate-sources`: what the loss becomes without a source of depth attention."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from scaling.commands.options import Sizes, Variants

MOST = 3  # sources of a line


def ablate_sources(
    run: Annotated[Path, typer.Argument(help="A run directory, such as runs/demo.")],
    size: Sizes = None,
    variant: Variants = None,
    seed: Annotated[list[int] | None, typer.Option(help="Only this seed; repeatable.")] = None,
    mode: Annotated[
        Literal["remove", "average"] | None,
        typer.Option(help="Only this way of taking a source away. [default: both]"),
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Validation tokens to measure on.")] = 8192,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Measure how the validation loss changes when reads go without one of their sources.

    Of every finished cell with attention over depth: each source is removed from each read (the
    others get its weight) or replaced there by its mean over tokens, then in all reads of a site
    at once. Writes ablation.parquet beside each cell's metrics.
    """
    from scaling.ablate import ablate, ablated_cells
    from scaling.console import make_console, progress_bar
    from scaling.ledger import Ledger

    cells = ablated_cells(run, size, variant, seed)
    modes = (mode,) if mode else ("remove", "average")
    found = {}
    with progress_bar(make_console(stderr=True)) as show:
        for cell in cells:
            progress = lambda done, total, key=cell.key: show(key, done, total)  # noqa: E731
            found[cell.key] = ablate(cell, run, modes, tokens, progress)
    paths = [str(Ledger(run).directory(cell) / "ablation.parquet") for cell in cells]
    if as_json:
        document = {
            key: {"validation_tokens": n, "rows": table.to_pylist()}
            for key, (table, n) in found.items()
        }
        typer.echo(json.dumps({"cells": document, "written": paths}))
        return
    _print(make_console(), cells, found)


def _print(console, cells, found) -> None:
    """The sources that matter most to each cell, taken from all its reads at once."""
    from scaling.ablate import names_of, sources_of
    from scaling.console import make_table

    columns = {"cell": "left", "mode": "left", "nats without a source in any read": "left"}
    table = make_table("", columns)
    for cell in cells:
        names = names_of(sources_of(cell.model))
        rows = [row for row in found[cell.key][0].to_pylist() if row["sublayer"] == -1]
        for mode in dict.fromkeys(row["mode"] for row in rows):
            of_mode = [row for row in rows if row["mode"] == mode and not row["site"]]
            most = sorted(of_mode, key=lambda row: -abs(row["delta"]))[:MOST]
            told = ", ".join(f"{names[row['source']]} {row['delta']:+.3f}" for row in most)
            table.add_row(cell.key, mode, told)
    console.print(table)
    counts = sorted({n for _, n in found.values()})
    on = " or ".join(f"{n:,}" for n in counts)
    console.print(
        f"The {MOST} sources that matter most, on {on} validation tokens. Every read by itself is "
        "in ablation.parquet, beside each cell's metrics."
    )
