"""From a source (run directory, CSV path, published name) to a raw table of strings."""

import csv
import hashlib
from dataclasses import dataclass
from pathlib import Path

from analysis.errors import Refusal, did_you_mean, listed

PUBLISHED = Path(__file__).parent / "published"
DELIMITERS = ",;\t"


@dataclass(frozen=True)
class RawTable:
    """Cells as written. `line_numbers` are those of the file, comments and blank lines counted."""

    path: Path
    sha256: str
    columns: list[str]
    rows: list[list[str]]
    line_numbers: list[int]
    decimal_comma: bool


def published_names() -> list[str]:
    """Names of the tables that ship with the package."""
    return sorted(p.stem for p in PUBLISHED.glob("*.csv"))


def locate(source: str | Path) -> Path:
    """The CSV file that `source` stands for."""
    path = Path(source)
    if path.is_dir():
        results = path / "results.csv"
        if not results.is_file():
            raise Refusal(
                "no-results",
                f"'{path}' holds no results.csv. If it is a study's run directory, "
                f"write one with `scaling results {path}`.",
            )
        written = results.stat().st_mtime
        if any(s.stat().st_mtime > written + 1 for s in path.glob("*/summary.json")):
            raise Refusal(
                "stale-results",
                f"'{results}' is older than a run's summary.json; bring it up to date with "
                f"`scaling results {path}`.",
            )
        return results
    if path.is_file():
        return path
    name = str(source)
    names = published_names()
    if name in names:
        return PUBLISHED / f"{name}.csv"
    if path.suffix or len(path.parts) > 1:
        raise Refusal("no-such-file", f"There is no file or directory '{path}'.")
    raise Refusal(
        "unknown-table",
        f"'{name}' is neither a run directory, a CSV file nor a published table "
        f"(published: {listed(names)}).{did_you_mean(name, names)}",
    )


def read(path: Path) -> RawTable:
    """Parse a CSV file: UTF-8 (a byte-order mark is fine), `#` comment lines, comma, semicolon or
    tab separated; with semicolons, decimal commas are understood.

    Raises:
        Refusal: unreadable, empty, or ragged file; repeated column names.
    """
    try:
        data = path.read_bytes()
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise Refusal(
            "unreadable", f"'{path}' cannot be read as UTF-8 text ({e}). Save it as a UTF-8 CSV."
        ) from e
    if "\0" in text:
        raise Refusal("unreadable", f"'{path}' is not a text file. Save it as a UTF-8 CSV.")
    numbered = [
        (n, line)
        for n, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not numbered:
        raise Refusal("empty", f"'{path}' is empty: a header line and one row a run are needed.")

    header = numbered[0][1]
    delimiter = max(DELIMITERS, key=header.count)
    reader = csv.reader((line for _, line in numbered), delimiter=delimiter)
    columns = [c.strip() for c in next(reader)]
    repeated = sorted({c for c in columns if columns.count(c) > 1})
    if repeated:
        raise Refusal("repeated-columns", f"'{path}' names {listed(repeated)} more than once.")
    rows, line_numbers = [], []
    for row in reader:
        line_number = numbered[reader.line_num - 1][0]
        if len(row) != len(columns):
            raise Refusal(
                "ragged-row",
                f"Line {line_number} of '{path}' has {len(row)} cells, the header has "
                f"{len(columns)}. Was the file cut short, or does a cell hold a '{delimiter}' "
                "without quotes?",
            )
        rows.append([cell.strip() for cell in row])
        line_numbers.append(line_number)
    if not rows:
        raise Refusal("empty", f"'{path}' has a header and no rows: one row a run is needed.")
    return RawTable(
        path, hashlib.sha256(data).hexdigest(), columns, rows, line_numbers, delimiter == ";"
    )
