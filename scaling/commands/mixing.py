"""`scaling mixing-matrix`: how much of each source the input of each sublayer holds."""

import json
from pathlib import Path
from typing import Annotated

import typer

from scaling.commands.options import Sizes, Variants


def mixing_matrix(
    where: Annotated[
        Path, typer.Argument(help="A run directory (trained models), or a study file (as made).")
    ],
    size: Sizes = None,
    variant: Variants = None,
    seed: Annotated[list[int] | None, typer.Option(help="Only this seed; repeatable.")] = None,
    n_sequences: Annotated[int, typer.Option(min=1, help="Sequences to average over.")] = 4,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to; the run's plots, or mixing/.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Compute and draw depth-mixing matrices: the contribution of source i to sublayer l's input.

    Of a run directory, finished cells are read from their last checkpoint, and validation tokens
    from the data; of a study, models are as made from the first seed, and tokens random.
    """
    from analysis.mixing import mixing_heatmaps
    from analysis.style import save
    from scaling.commands.cells import study_cells
    from scaling.console import make_console, progress_bar
    from scaling.files import write_text
    from scaling.mixing import initial_matrix, table, trained_matrix
    from scaling.trained import trained_cells

    if where.is_dir():
        cells, compute = trained_cells(where, size, variant, seed), trained_matrix
        out = out or where / "plots"
    else:
        cells = study_cells(where, None, size, variant, seed, one_seed=not seed)[1]
        compute, out = initial_matrix, out or Path("mixing")
    matrices = {}
    with progress_bar(make_console(stderr=True)) as show:
        for number, cell in enumerate(cells):
            show("depth-mixing matrices", number, len(cells))
            matrices[cell.key] = compute(cell, where, n_sequences)
        show("depth-mixing matrices", len(cells), len(cells))
    rows = table(matrices)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "mixing.csv", rows.to_csv(index=False))
    paths = [out / "mixing.csv", *save(mixing_heatmaps(rows), out, "mixing")]
    if as_json:
        document = {key: matrix.tolist() for key, matrix in matrices.items()}
        typer.echo(json.dumps({"matrices": document, "written": [str(p) for p in paths]}))
        return
    for path in paths:
        typer.echo(path)
