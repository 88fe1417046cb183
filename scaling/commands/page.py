"""`scaling report`: one page that shows a study, and serves itself while the study runs."""

from pathlib import Path
from typing import Annotated

import typer

from scaling.commands.options import Baseline, MixedData, Source

PORT = 8123


def report(
    source: Source,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write.", show_default="report.html in the run directory"),
    ] = None,
    baseline: Baseline = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the page here, renewed while the study runs.")
    ] = False,
    port: Annotated[int, typer.Option(help="Of --serve; 0 takes a free one.")] = PORT,
    allow_mixed_data: MixedData = False,
) -> None:
    """Write report.html: a study's verdict, tables and curves in one file that needs no network."""
    from analysis.page import html
    from scaling.files import write_text
    from scaling.page import Pages

    pages = Pages(source, baseline, allow_mixed_data)
    if out is None:
        run = Path(source)
        out = run / "report.html" if run.is_dir() else Path(f"report-{run.stem}.html")
    data = pages.data()
    write_text(out, html(data))
    typer.echo(out)
    for words in data["missing"]:
        typer.echo(words, err=True)
    if serve:
        from scaling.serve import serve_page

        serve_page(pages, port, lambda url: typer.echo(f"Serving {url} until Ctrl-C"))
