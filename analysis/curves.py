"""Training curves of a study, as one tidy frame."""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import json as arrow_json

from analysis import reading
from analysis.errors import Refusal
from analysis.numbers import plain_numbers
from analysis.table import load

COLUMNS = ("variant", "size", "seed", "step", "tokens", "loss")
MAX_POINTS = 5000  # of a run, more than a figure or a page can show
_FIELDS = {"step": pa.int64(), "tokens": pa.int64(), "loss": pa.float64()}


def load_curves(
    run_dir: str | Path,
    *,
    unfinished: bool = False,
    strict: bool = True,
    max_points: int = MAX_POINTS,
) -> pd.DataFrame:
    """Training loss by step of every finished run: variant, size, seed, step, tokens, loss (nats).

    Reads `<run_dir>/<cell>/metrics.jsonl`, one JSON object a line; lines without a step, tokens and
    loss (such as evaluations) are passed over, and so is a last line that is not whole. Cells come
    from the `cell` column of results.csv.

    Args:
      unfinished: runs that are not done too, as far as they have come.
      strict: refuse a damaged file; otherwise what comes before the damage is kept, and
        `attrs["damaged"]` lists what was found where, a sentence each.
      max_points: of a run; of a longer log, as many consecutive lines as it takes are averaged into
        one point, with the step and tokens of the last of them.

    Raises:
        Refusal: "no-cells", "no-curves", "bad-metrics" (naming file and line), or those of load().
    """
    run_dir = Path(run_dir)
    found, damaged = [], []
    for run in cells_of(run_dir, unfinished).itertuples():
        path = run_dir / str(run.cell) / "metrics.jsonl"
        if not path.is_file():
            continue
        points, damage = _readable(path)
        if damage and strict:
            raise Refusal("bad-metrics", damage)
        damaged += [damage] if damage else []
        points = _averaged(points, max_points)
        found.append(points.assign(variant=run.variant, size=run.size, seed=run.seed))
    if not any(len(points) for points in found):
        because = f" {' '.join(damaged)}" if damaged else ""
        raise Refusal(
            "no-curves", f"No run in '{run_dir}' has a metrics.jsonl with losses.{because}"
        )
    curves = pd.concat([points for points in found if len(points)], ignore_index=True)
    curves = curves[list(COLUMNS)]
    curves.attrs["damaged"] = damaged
    return curves


def cells_of(run_dir: str | Path, unfinished: bool = False) -> pd.DataFrame:
    """cell (its folder), variant, size, seed and status of the runs in results.csv, done ones
    first.

    Args:
      unfinished: also those that are running, pending or failed.

    Raises:
      Refusal: "no-cells", or those of load().
    """
    columns = ["cell", "variant", "size", "seed", "status"]
    try:
        done = load(run_dir, allow_mixed_data=True)
    except Refusal as reason:
        if not (unfinished and reason.code == "no-finished-runs"):
            raise
        done = pd.DataFrame(columns=columns)
    if "cell" not in done:
        raise Refusal(
            "no-cells",
            f"The results of '{run_dir}' have no `cell` column, so runs cannot be found. "
            f"Write them anew with `scaling results {run_dir}`.",
        )
    done = done.assign(status="done")[columns]
    if not unfinished:
        return done
    raw = reading.read(reading.locate(run_dir)).cells
    if not {"cell", "variant", "size", "seed", "status"} <= set(raw):
        return done
    others = raw.loc[raw["status"] != "done", columns]
    others = others.assign(seed=plain_numbers(others["seed"], False))
    return others if done.empty else pd.concat([done, others], ignore_index=True)


def read_points(path: Path) -> tuple[pd.DataFrame, str | None]:
    """Columns step, tokens, loss of one metrics.jsonl, up to where it is damaged.

    Returns:
      The points, and a sentence that names the damaged line, None where there is none.

    Raises:
      OSError: it cannot be read at all.
    """
    data = path.read_bytes()
    whole, _, last = data.rstrip().rpartition(b"\n")
    data = whole if _record(last) is None else data  # a run that was killed while writing
    try:
        options = arrow_json.ParseOptions(pa.schema(_FIELDS), unexpected_field_behavior="ignore")
        table = arrow_json.read_json(io.BytesIO(data), parse_options=options)
    except pa.ArrowInvalid:
        return _points_by_line(path, data)  # four times slower, and it knows the line
    return table.select(list(_FIELDS)).drop_null().to_pandas(), None


# the name that analysis.page knows it by


def _readable(path: Path) -> tuple[pd.DataFrame, str | None]:
    try:
        return read_points(path)
    except OSError as e:
        return pd.DataFrame(columns=list(_FIELDS)), f"'{path}' cannot be read: {e.strerror}."


def _points_by_line(path: Path, data: bytes) -> tuple[pd.DataFrame, str | None]:
    points, damage = [], None
    for number, line in enumerate(data.splitlines(), start=1):
        record = _record(line)
        if record is None and line.strip():
            damage = f"Line {number} of '{path}' is not a JSON object."
            break
        values = [record.get(name) for name in _FIELDS] if isinstance(record, dict) else [None]
        if None in values:
            continue
        try:
            step, tokens, loss = map(float, values)
            points.append((int(step), int(tokens), loss))
        except (TypeError, ValueError, OverflowError):
            damage = f"Line {number} of '{path}' has a step, tokens or loss that is no number."
            break
    return pd.DataFrame(points, columns=list(_FIELDS)), damage


def _record(line: bytes) -> object | None:
    try:
        return json.loads(line)
    except ValueError:  # also of bytes that are no text
        return None


def _averaged(points: pd.DataFrame, most: int) -> pd.DataFrame:
    """At most `most` points, each the mean of as many consecutive ones."""
    size = -(-len(points) // most)
    if size <= 1:
        return points
    starts = np.arange(0, len(points), size)
    ends = np.minimum(starts + size, len(points))
    means = np.add.reduceat(points["loss"].to_numpy(), starts) / (ends - starts)
    return points.iloc[ends - 1].assign(loss=means)
