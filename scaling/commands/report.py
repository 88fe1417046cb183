"""Tables, sentences and labels that the commands on finished runs share."""

import json
from pathlib import Path


def labels_of(source: str) -> dict[str, str]:
    """What a run directory's study calls its baseline, Full and Block; {} where it does not say."""
    try:
        grid = json.loads((Path(source) / "grid.json").read_text(encoding="utf-8"))
        labels = {cell["model"]["residual"]["name"]: cell["variant"] for cell in grid["cells"]}
        return {"baseline": grid["baseline"], **labels}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def print_rows(title: str, rows: list[dict[str, str]], stack: bool = True) -> None:
    """A table. Stacked, an interval goes below its value: four columns of them fit the width."""
    from scaling.console import make_console, make_table

    columns = {name: "right" if i else "left" for i, name in enumerate(rows[0])}
    table = make_table(title, columns)
    for row in rows:
        table.add_row(*(cell.replace(" [", "\n[") if stack else cell for cell in row.values()))
    make_console().print(table, markup=False)


def say(sentences: list[str], bold: bool = False) -> None:
    """A paragraph each."""
    from rich.text import Text

    from scaling.console import make_console

    for sentence in sentences:
        make_console().print(Text(sentence, style="bold" if bold else ""))
