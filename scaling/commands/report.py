"""Tables, sentences and labels that the commands on finished runs share."""

import json
from pathlib import Path


def labels_of(source: str) -> dict[str, str]:
    """What a run directory's study calls its baseline, Full and Block; {} where it does not say."""
    try:
        grid = json.loads((Path(source) / "grid.json").read_text(encoding="utf-8"))
        found: dict[str, set[str]] = {}
        for cell in grid["cells"]:
            found.setdefault(cell["model"]["residual"]["name"], set()).add(cell["variant"])
        # One of several variants of a residual connection is meant where it bears its name.
        labels = {
            name: name if name in labels else min(labels)
            for name, labels in found.items()
            if name in labels or len(labels) == 1
        }
        return {"baseline": grid["baseline"], **labels}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def print_rows(title: str, rows: list[dict[str, str]], stack: bool = True) -> None:
    """A table. Stacked, an interval goes below its value: four columns of them fit the width."""
    from scaling.console import make_console, make_table

    names = list(dict.fromkeys(name for row in rows for name in row))
    table = make_table(title, {name: "right" if i else "left" for i, name in enumerate(names)})
    for row in rows:
        cells = [row.get(name, "-") for name in names]
        table.add_row(*(cell.replace(" [", "\n[") if stack else cell for cell in cells))
    make_console().print(table, markup=False)


def say(sentences: list[str], bold: bool = False) -> None:
    """A paragraph each."""
    from rich.text import Text

    from scaling.console import make_console

    for sentence in sentences:
        make_console().print(Text(sentence, style="bold" if bold else ""))
