"""From a source (run directory, CSV path, published name) to a raw table of strings."""

import csv
import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyarrow import compute
from pyarrow import csv as arrow_csv

from analysis.errors import Refusal, did_you_mean, listed

PUBLISHED = Path(__file__).parent / "published"
DELIMITERS = ",;\t"


@dataclass(frozen=True)
class RawTable:
    """Cells as written. `line_numbers` are those of the file, comments and blank lines counted."""

    path: Path
    sha256: str
    cells: pd.DataFrame
    line_numbers: Sequence[int]
    decimal_comma: bool


def published_names() -> list[str]:
    """Names of the tables that ship with the package."""
    return sorted(p.stem for p in PUBLISHED.glob("*.csv"))


def locate(source: str | Path) -> Path:
    """The CSV file that `source` stands for."""
    if not str(source):
        raise Refusal("no-such-file", "The source is empty; name a run directory, CSV or table.")
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
    """Parse a CSV file: UTF-8 (a byte-order mark is fine), comma, semicolon or tab separated; with
    semicolons, decimal commas are understood.

    Lines that start with `#` are comments. Below the header, one that has as many cells as the
    header may as well be a run whose variant is called "#1", and is refused; quoted, it is a run.

    Raises:
        Refusal: "unreadable", "empty", "ragged-row", "repeated-columns" or "comment-or-row".
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
    lines = text.splitlines()
    header = next((s for s in lines if s.strip() and not s.lstrip().startswith("#")), None)
    if header is None:
        raise Refusal("empty", f"'{path}' is empty: a header line and one row a run are needed.")
    delimiter = max(DELIMITERS, key=header.count)
    rows = _rows(path, lines, delimiter)
    at, names = next(rows)
    columns = [c.strip() for c in names]
    repeated = sorted({c for c in columns if columns.count(c) > 1})
    if repeated:
        raise Refusal("repeated-columns", f"'{path}' names {listed(repeated)} more than once.")
    cells, line_numbers = _plain_rows(lines[at:], columns, delimiter), range(at + 1, len(lines) + 1)
    if cells is None:
        flat, line_numbers = [], []  # one row after another: a list each takes twice as long
        for number, row in rows:
            flat += map(str.strip, row)
            line_numbers.append(number)
        by_column = {c: flat[i :: len(columns)] for i, c in enumerate(columns)}
        cells = pd.DataFrame(by_column, dtype=str)
    if cells.empty:
        raise Refusal("empty", f"'{path}' has a header and no rows: one row a run is needed.")
    sha256 = hashlib.sha256(data).hexdigest()
    return RawTable(path, sha256, cells, line_numbers, delimiter == ";")


def _plain_rows(lines: list[str], columns: list[str], delimiter: str) -> pd.DataFrame | None:
    """A row a line, by Arrow's reader, which takes a tenth of the time of `_rows`.

    None where that is not all there is to it: quotes, comments, blank lines, what is refused.
    """
    text = "\n".join(lines)
    if '"' in text or max(map(len, lines), default=0) > csv.field_size_limit():
        return None
    try:
        table = arrow_csv.read_csv(
            io.BytesIO(text.encode()),
            arrow_csv.ReadOptions(column_names=columns),
            arrow_csv.ParseOptions(delimiter=delimiter, quote_char=False),
            arrow_csv.ConvertOptions(column_types=dict.fromkeys(columns, pa.string())),
        )
    except pa.ArrowInvalid:
        return None
    cells = {c: compute.utf8_trim_whitespace(table[c]) for c in columns}
    commented = compute.any(compute.starts_with(cells[columns[0]], "#")).as_py()
    return None if commented or len(table) < len(lines) else pa.table(cells).to_pandas()


def _rows(path: Path, lines: list[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(number of its last line, cells) of the header and of each row, all of the same length."""
    number, began, width = 0, None, None

    def without_comments():
        """Nor blank lines; what is within a quoted cell stays."""
        nonlocal number, began
        for number, line in enumerate(lines, start=1):
            if began is None:
                written = line.lstrip()
                if not written:
                    continue
                if written[0] == "#":
                    if width and len(next(csv.reader([line], delimiter=delimiter))) == width:
                        raise Refusal(
                            "comment-or-row",
                            f"Line {number} of '{path}' starts with # and has as many cells as the "
                            "header, so it may be a comment or a run. Delete it, or put its first "
                            "cell in quotes if it is a run.",
                        )
                    continue
                began = number
            yield line + "\n"  # a line break in a quoted cell is kept
        if began is not None:
            raise Refusal(
                "unreadable",
                f"The row that begins on line {began} of '{path}' opens a quote that never closes.",
            )

    try:
        for row in csv.reader(without_comments(), delimiter=delimiter):
            began, width = None, width or len(row)
            if len(row) != width:
                raise Refusal(
                    "ragged-row",
                    f"Line {number} of '{path}' has {len(row)} cells, the header has {width}. Was "
                    f"the file cut short, or does a cell hold a '{delimiter}' without quotes?",
                )
            yield number, row
    except csv.Error as e:
        raise Refusal(
            "unreadable",
            f"Line {number} of '{path}' cannot be read as CSV ({e}). Does it open a quote that "
            "never closes, or is it another kind of file?",
        ) from e
