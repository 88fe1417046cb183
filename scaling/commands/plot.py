"""`scaling plot`: the pictures of a study."""

import json
from pathlib import Path
from typing import Annotated

import typer

from scaling.commands.options import Baseline, Json, MixedData, Source
from scaling.commands.report import opened


def plot(
    source: Source,
    as_json: Json = False,
    baseline: Baseline = None,
    out: Annotated[Path | None, typer.Option(help="Directory for the plots.")] = None,
    allow_mixed_data: MixedData = False,
) -> None:
    """Draw the plots of a study as PNG and SVG."""
    from analysis.plots import save_all

    df, baseline = opened(source, baseline, allow_mixed_data)
    run = Path(source) if Path(source).is_dir() else None
    if out is None:
        out = run / "plots" if run else Path(f"plots-{Path(source).stem}")
    written, skipped = save_all(df, out, baseline=baseline, run=run)
    if as_json:
        typer.echo(json.dumps({"written": [str(p) for p in written], "skipped": skipped}, indent=2))
        return
    for path in written:
        typer.echo(path)
    for name, reason in skipped.items():
        typer.echo(f"No {name}: {reason}", err=True)
