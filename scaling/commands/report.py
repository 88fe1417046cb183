"""Tables, sentences and labels that the commands on finished runs share."""

import json
import re
from pathlib import Path

# "1.24x [1.19, 1.29]", and no name that has a bracket in it
_WITH_INTERVAL = re.compile(r"([-+]?\d\S*|inf\S*) (\[\S+, \S+\])")


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


def opened(source: str, baseline: str | None, allow_mixed_data: bool):
    """(the results table, the baseline that was asked for or that the study names)."""
    from analysis import load

    df = load(source, allow_mixed_data=allow_mixed_data)
    return df, labels_of(source).get("baseline") if baseline is None else baseline


def print_rows(title: str, rows: list[dict[str, str]]) -> None:
    """A table, labels first. Where it would be too wide, intervals go below their values."""
    from scaling.console import make_console, make_table

    console, names = make_console(), list(dict.fromkeys(name for row in rows for name in row))
    widths = [max(len(row.get(name, "-")) for row in [*rows, {name: name}]) for name in names]
    stack = sum(widths) + 2 * (len(names) - 1) > console.width
    table = make_table(title, {name: "right" if i else "left" for i, name in enumerate(names)})
    for row in rows:
        label, *cells = (row.get(name, "-") for name in names)
        for i, cell in enumerate(cells):
            if stack and (found := _WITH_INTERVAL.fullmatch(cell)):
                cells[i] = "\n".join(found.groups())
        table.add_row(label, *cells)
    console.print(table, markup=False)


def say(sentences: list[str], bold: bool = False) -> None:
    """A paragraph each."""
    from rich.text import Text

    from scaling.console import make_console

    for sentence in sentences:
        make_console().print(Text(sentence, style="bold" if bold else ""))
