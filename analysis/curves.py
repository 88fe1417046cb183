"""Training curves of a study, as one tidy frame."""

import json
from pathlib import Path

import pandas as pd

from analysis.errors import Refusal
from analysis.table import load

COLUMNS = ("variant", "size", "seed", "step", "tokens", "loss")


def load_curves(run_dir: str | Path) -> pd.DataFrame:
    """Training loss by step of every finished run: variant, size, seed, step, tokens, loss (nats).

    Reads `<run_dir>/<cell>/metrics.jsonl`, one JSON object a line; lines without a step, tokens and
    loss (such as evaluations) are passed over. Cells come from the `cell` column of results.csv.

    Raises:
        Refusal: "no-cells", "no-curves", "bad-metrics" (naming file and line), or those of load().
    """
    run_dir = Path(run_dir)
    df = load(run_dir, allow_mixed_data=True)
    if "cell" not in df:
        raise Refusal(
            "no-cells",
            f"The results of '{run_dir}' have no `cell` column, so runs cannot be found. "
            f"Write them anew with `scaling results {run_dir}`.",
        )
    rows = []
    for cell, variant, size, seed in zip(
        df["cell"], df["variant"], df["size"], df["seed"], strict=True
    ):
        path = run_dir / str(cell) / "metrics.jsonl"
        if path.is_file():
            rows += [(variant, size, seed, *point) for point in _points(path)]
    if not rows:
        raise Refusal("no-curves", f"No run in '{run_dir}' has a metrics.jsonl with losses.")
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _points(path: Path) -> list[tuple[int, int, float]]:
    points = []
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            if number == len(lines):  # a run that was killed while writing
                break
            raise Refusal(
                "bad-metrics", f"Line {number} of '{path}' is not a JSON object."
            ) from None
        if isinstance(record, dict) and {"step", "tokens", "loss"} <= record.keys():
            points.append((record["step"], record["tokens"], record["loss"]))
    return points
