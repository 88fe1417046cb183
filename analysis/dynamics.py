"""What was measured inside models while they trained, and what their sources are worth.

Each cell of a run directory has dynamics.parquet, and after `scaling ablate-sources`
ablation.parquet.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.curves import cells_of
from analysis.errors import Refusal, did_you_mean, listed

RUN = ("variant", "size", "seed")
DYNAMICS = {
    "step": pa.int32(), "metric": pa.string(), "site": pa.string(), "sublayer": pa.int16(),
    "source": pa.int16(), "value": pa.float32(),
}  # fmt: skip
ABLATION = {
    "mode": pa.string(), "site": pa.string(), "sublayer": pa.int16(), "source": pa.int16(),
    "delta": pa.float32(), "tokens": pa.int32(),
}  # fmt: skip


ADVICE = {
    "dynamics": "Move it away; a run that goes on writes a new one from its last checkpoint on.",
    "ablation": "`scaling ablate-sources` writes it anew.",
}


def load_dynamics(
    run_dir: str | Path,
    *,
    metrics: Sequence[str] | None = None,
    last_step: bool = False,
    unfinished: bool = False,
    strict: bool = True,
) -> pd.DataFrame:
    """Columns variant, size, seed, step, metric, site, sublayer, source, value; a row a number.

    `sublayer` counts attention and MLP alternately from 0 (2 n_layers is the read before the head,
    -1 the whole model); `source` is -1 where there is none, and 0 the embedding.

    Args:
      metrics: only these, such as "output_rms" and "alpha".
      last_step: of each run and metric, only what was measured last.
      unfinished: runs that are not done too.
      strict: refuse a damaged file; otherwise it is left out, and `attrs["damaged"]` says so.

    Raises:
      Refusal: "no-dynamics": no run has the file, or none has these metrics; "bad-dynamics": a file
        is damaged, or has other columns; "no-cells", or those of load().
    """
    wanted = None if metrics is None else set(metrics)

    def kept(table: pa.Table) -> pa.Table:
        if wanted is not None:
            table = table.filter(pc.is_in(table["metric"], pa.array(sorted(wanted), pa.string())))
        return _last(table) if last_step else table

    found, damaged = _tables(run_dir, "dynamics", kept, unfinished, strict)
    if found is None:
        raise Refusal("no-dynamics", _missing(run_dir, "dynamics", damaged))
    if found.empty:
        what = "nothing" if metrics is None else f"none of {listed(metrics)}"
        raise Refusal("no-dynamics", f"The dynamics of the runs in '{run_dir}' hold {what}.")
    found.attrs["damaged"] = damaged
    return found


def load_ablation(
    run_dir: str | Path, *, unfinished: bool = False, strict: bool = True
) -> pd.DataFrame:
    """Columns variant, size, seed, mode, site, sublayer, source, delta, tokens; a row a cut.

    `delta` is the change of the validation loss in nats where a source is removed from the reads of
    a site (`mode` "remove") or replaced there by its mean over tokens ("average"), on `tokens`
    validation tokens. See scaling/ablate.py.

    Raises:
      Refusal: "no-ablation", "bad-ablation"; otherwise as `load_dynamics`.
    """
    found, damaged = _tables(run_dir, "ablation", lambda t: t, unfinished, strict)
    if found is None or found.empty:
        hint = f" Measure with `scaling ablate-sources {run_dir}`."
        raise Refusal("no-ablation", _missing(run_dir, "ablation", damaged) + hint)
    found.attrs["damaged"] = damaged
    return found


def source_names(n_sources: int, n_sublayers: int) -> list[str]:
    """What each source of depth attention is, by its number.

    Sources are the embedding and all sublayers' outputs, or, where they are fewer, blocks.
    """
    if n_sources <= n_sublayers:
        return ["embedding", *(f"block {i}" for i in range(1, n_sources))]
    outputs = [f"{('attention', 'MLP')[i % 2]} of layer {i // 2}" for i in range(n_sublayers)]
    return ["embedding", *outputs]


def require_metric(df: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows of one metric that are finite.

    Raises:
      Refusal: "no-metric", naming those that there are.
    """
    rows = df[(df["metric"] == metric) & df["value"].notna()]
    rows = rows[rows["value"].abs() < float("inf")]
    if rows.empty:
        known = [str(m) for m in df["metric"].unique()]
        if metric in known:
            raise Refusal("no-metric", f"All values of '{metric}' are infinite or no number.")
        raise Refusal(
            "no-metric",
            f"The dynamics have no '{metric}', only {listed(known)}.{did_you_mean(metric, known)}",
        )
    return rows


def _tables(run_dir, name: str, kept, unfinished: bool, strict: bool):
    """All cells' files of one name in one frame (None without any), and what is damaged."""
    frames, damaged = [], []
    for run in cells_of(run_dir, unfinished).itertuples():
        path = Path(run_dir) / str(run.cell) / f"{name}.parquet"
        if not path.is_file():
            continue
        try:
            frame = kept(read_file(path, name)).to_pandas()
        except Refusal as reason:
            if strict:
                raise
            damaged.append(str(reason))
            continue
        for i, column in enumerate(RUN):
            frame.insert(i, column, getattr(run, column))
        frames.append(frame)
    if not frames:
        return None, damaged
    return pd.concat([f for f in frames if len(f)] or frames[:1], ignore_index=True), damaged


def read_file(path: Path, name: str) -> pa.Table:
    """One cell's file, "dynamics" or "ablation", with the columns and types of its schema.

    Raises:
      Refusal: "bad-dynamics" or "bad-ablation": it is damaged, or has other columns.
    """
    return _read(path, name, {"dynamics": DYNAMICS, "ablation": ABLATION}[name])


def _read(path: Path, name: str, schema: dict) -> pa.Table:
    try:
        table = pq.read_table(path, partitioning=None)
        missing = [column for column in schema if column not in table.column_names]
        if missing:
            raise Refusal(
                f"bad-{name}",
                f"'{path}' lacks the column{'s' * (len(missing) > 1)} {listed(missing)}; it has "
                f"{listed(table.column_names)}.",
            )
        return table.select(list(schema)).cast(pa.schema(schema))
    except (pa.ArrowException, OSError) as e:
        first = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise Refusal(
            f"bad-{name}",
            f"'{path}' cannot be read ({first}). {ADVICE[name]}",
        ) from e


def _last(table: pa.Table) -> pa.Table:
    """Of each metric, the rows of its last step."""
    if not len(table):
        return table
    frame = table.to_pandas()
    last = frame.groupby("metric")["step"].transform("max")
    return pa.table({c: frame.loc[frame["step"] == last, c] for c in frame}, pa.schema(DYNAMICS))


def _missing(run_dir, name: str, damaged: list[str]) -> str:
    if damaged:
        return f"No run in '{run_dir}' has an intact {name}.parquet. {' '.join(damaged)}"
    return f"No run in '{run_dir}' has {name}.parquet."
