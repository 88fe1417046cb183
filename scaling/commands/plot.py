"""`scaling plot`: the pictures of a study."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from scaling.commands.options import Baseline, Json, MixedData, Source
from scaling.commands.report import labels_of, opened


def plot(
    source: Source,
    as_json: Json = False,
    baseline: Baseline = None,
    size: Annotated[
        str | None,
        typer.Option(
            help="Of plots that show one size.", show_default="the largest that compares variants"
        ),
    ] = None,
    width: Annotated[
        Literal["full", "column"],
        typer.Option(help="Of the page (6.8 in), or of a column (3.3 in); type at its final size."),
    ] = "full",
    pdf: Annotated[bool, typer.Option("--pdf", help="PDF too.")] = False,
    out: Annotated[Path | None, typer.Option(help="Directory for the plots.")] = None,
    allow_mixed_data: MixedData = False,
) -> None:
    """Draw the plots of a study as PNG and SVG: all that its files support.

    What cannot be drawn is named with the reason. Of a study without a finished run, the curves of
    those that have begun are drawn.
    """
    from analysis import Refusal
    from analysis.plots import COLUMN, FULL, save_all

    run = Path(source) if Path(source).is_dir() else None
    try:
        df, known = opened(source, baseline, allow_mixed_data)
        # A sweep of learning rates names its study's baseline, and has none of that name.
        baseline = baseline or (known if known in set(df["variant"]) else None)
        unread = None
    except Refusal as reason:
        if run is None or reason.code != "no-finished-runs":
            raise
        df, baseline, unread = None, baseline or labels_of(source).get("baseline"), reason
    if out is None:
        out = run / "plots" if run else Path(f"plots-{Path(source).stem}")
    page = {"full": FULL, "column": COLUMN}[width]
    labels = labels_of(source)
    names = {
        key: labels[name]
        for key, name in (("full", "attnres_full"), ("block", "attnres_block"))
        if name in labels
    }
    written, skipped = save_all(df, out, baseline, run, size=size, page=page, pdf=pdf, **names)
    if unread:
        if not written:
            raise unread
        skipped = {"plots of results": str(unread)} | skipped
    if as_json:
        typer.echo(json.dumps({"written": [str(p) for p in written], "skipped": skipped}, indent=2))
        return
    for path in written:
        typer.echo(path)
    names_of: dict[str, list[str]] = {}  # a reason is said once
    for name, reason in skipped.items():
        names_of.setdefault(reason, []).append(name)
    for reason, of_reason in names_of.items():
        typer.echo(f"No {', '.join(of_reason)}: {reason}", err=True)
