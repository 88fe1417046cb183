"""The canonical results table: one finished run a row, checked once so that no fit has to."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from analysis import reading
from analysis.errors import Refusal, did_you_mean, listed
from analysis.numbers import numeric_column, plain_numbers

FLOP_PER_PFLOPS_DAY = 8.64e19
CANONICAL = ("variant", "size", "seed", "loss", "train_flops", "pflops_days")
# A published table rounds compute to about three digits; a wrong unit is off by far more than this.
COMPUTE_AGREEMENT = 0.01
# Largest ratio of compute between variants of one size when sizes have to be guessed from compute.
SAME_SIZE_COMPUTE = 1.25
SAME_UNIT = 100.0  # a larger ratio of compute between variants of one size is another unit
BASELINE_NAMES = ("prenorm", "baseline")

Where = Callable[[int], str]  # from a row's position to words, as "Line 4 of 'results.csv'"


def load(source: str | Path | pd.DataFrame, *, allow_mixed_data: bool = False) -> pd.DataFrame:
    """The results table of a study, a CSV file, a published table, or a DataFrame like one.

    Columns read: `variant`; `val_loss` or `loss` (nats; with both, `val_loss` is the loss and the
    other is kept as `train_loss`); `train_flops` (FLOP) or `pflops_days` (1 PFLOP/s-day = 8.64e19
    FLOP); optional `size`, `seed`, `status`, `flops_convention`, `data_fingerprint`.

    Returns:
        One row a finished run, sorted by variant (in order of appearance), compute and seed, with
        the columns variant, size, seed, loss, train_flops, pflops_days first and every other
        column kept. Without `size`, sizes are numbered by compute within a variant where every
        variant has the same number of runs at near-equal compute, else labelled by their compute.
        `attrs` holds source, sha256, loss_column, flops_convention, excluded ({status: rows}).

    Raises:
        Refusal: see the code; the message names the line and the value, or the column.
    """
    df, where, attrs, decimal_comma = _raw(source)
    _require_columns(df, attrs["source"])

    df, where, attrs["excluded"] = _finished_only(df, where)
    attrs["loss_column"] = "val_loss" if "val_loss" in df else "loss"
    if attrs["loss_column"] == "val_loss":
        df = df.rename(columns={"loss": "train_loss"} if "train_loss" not in df else {})
        df = df.drop(columns="loss", errors="ignore").rename(columns={"val_loss": "loss"})

    for column in ("loss", "train_flops", "pflops_days"):
        if column in df:
            name = attrs["loss_column"] if column == "loss" else column
            df[column] = numeric_column(df[column], name, where, decimal_comma)
    _settle_compute(df, where)

    attrs["flops_convention"] = _single_value(df, "flops_convention", "FLOP conventions")
    if not allow_mixed_data:
        _single_value(df, "data_fingerprint", "data fingerprints")

    blank = np.flatnonzero(_blank(df["variant"]))
    if len(blank):
        raise Refusal("missing-value", f"{where(blank[0])}: `variant` is empty.")
    df["variant"] = df["variant"].astype(str)
    for column in ("seed", "size"):
        df = _without_blanks(df, column, where)
    has_seed = "seed" in df
    df["seed"] = plain_numbers(df["seed"], decimal_comma) if has_seed else 0
    if df["seed"].dtype == object and df["seed"].map(type).nunique() > 1:
        df["seed"] = df["seed"].astype(str)  # numbers and words have no order
    if "size" in df:
        df["size"] = df["size"].astype(str)
    else:
        df["size"] = _sizes_from_compute(df)
    _refuse_mixed_sizes(df)
    _refuse_duplicates(df, where, has_seed)

    extra = [c for c in df.columns if c not in CANONICAL]
    for column in extra:
        df[column] = plain_numbers(df[column], decimal_comma)
    order = {v: i for i, v in enumerate(df["variant"].unique())}
    df["_order"] = df["variant"].map(order)
    df = df.sort_values(["_order", "pflops_days", "seed"], kind="stable", ignore_index=True)
    df = df[[*CANONICAL, *extra]]
    df.attrs = attrs
    return df


def baseline(df: pd.DataFrame, name: str | None = None) -> str:
    """The variant that others are compared with: `name`, else "prenorm" or "baseline".

    Raises:
        Refusal: "missing-variant" or "no-baseline", naming the variants there are.
    """
    variants = list(df["variant"].unique())
    if name is not None:
        return require_variant(df, name)
    for known in BASELINE_NAMES:
        for variant in variants:
            if variant.lower() == known:
                return variant
    raise Refusal(
        "no-baseline",
        f"No variant is called 'prenorm' or 'baseline'; the table has {listed(variants)}. "
        "Say which one is the baseline.",
    )


def require_variant(df: pd.DataFrame, name: str) -> str:
    """`name` if the table has it; a refusal with the closest name otherwise."""
    variants = list(df["variant"].unique())
    if name not in variants:
        raise Refusal(
            "missing-variant",
            f"There is no variant '{name}' in the table, which has {listed(variants)}."
            f"{did_you_mean(name, variants)}",
        )
    return name


def _raw(source) -> tuple[pd.DataFrame, Where, dict, bool]:
    if isinstance(source, pd.DataFrame):
        df = source.reset_index(drop=True).copy()
        if df.empty:
            raise Refusal("empty", "The table has no rows: one row a run is needed.")
        names = list(df.columns)
        unnamed = [c for c in names if not isinstance(c, str)]
        if unnamed:
            raise Refusal(
                "column-names",
                f"The table has column names that are not text ({listed(unnamed[:3])}). Rename "
                "them, as to 'variant', 'loss' and 'train_flops'.",
            )
        repeated = sorted({c for c in names if names.count(c) > 1})
        if repeated:
            raise Refusal("repeated-columns", f"The table names {listed(repeated)} more than once.")
        sha = hashlib.sha256(df.to_csv(index=False).encode()).hexdigest()
        return df, "Row {}".format, {"source": "a DataFrame", "sha256": sha}, False
    raw = reading.read(reading.locate(source))

    def where(row: int) -> str:
        return f"Line {raw.line_numbers[row]} of '{raw.path}'"

    return raw.cells, where, {"source": str(source), "sha256": raw.sha256}, raw.decimal_comma


def _require_columns(df: pd.DataFrame, source: str) -> None:
    alternatives = (("variant",), ("val_loss", "loss"), ("train_flops", "pflops_days"))
    missing = [names for names in alternatives if not any(n in df for n in names)]
    if missing:
        wanted = " and ".join(" or ".join(f"`{n}`" for n in names) for names in missing)
        bits = [c for c in df if "bit" in c.lower() or c.lower() == "bpb"]
        in_bits = any("loss" in names for names in missing) and bits
        hint = f" `{bits[0]}` seems to be in bits: nats are bits times 0.6931." if in_bits else ""
        raise Refusal(
            "missing-columns",
            f"{source} has no column {wanted}; its columns are {listed(df.columns)}.{hint}",
        )


def _finished_only(df: pd.DataFrame, where: Where) -> tuple[pd.DataFrame, Where, dict]:
    if "status" not in df:
        return df, where, {}
    status = df["status"].astype(object).where(df["status"].notna(), "")
    done = status == "done"
    excluded = {str(k) or "(blank)": int(n) for k, n in status[~done].value_counts().items()}
    if not done.any():
        counts = ", ".join(f"{n} {k}" for k, n in excluded.items())
        raise Refusal(
            "no-finished-runs",
            f"No run has status 'done' ({counts}). Finish or resume the study, then fit.",
        )
    kept = np.flatnonzero(done)
    return df.iloc[kept].reset_index(drop=True), lambda row: where(kept[row]), excluded


def _settle_compute(df: pd.DataFrame, where: Where) -> None:
    _require_unit(df, where)
    if "train_flops" not in df:
        df["train_flops"] = df["pflops_days"] * FLOP_PER_PFLOPS_DAY
        return
    from_flops = df["train_flops"] / FLOP_PER_PFLOPS_DAY
    if "pflops_days" in df:
        off = (df["pflops_days"] / from_flops - 1).abs() > COMPUTE_AGREEMENT
        if off.any():
            i = int(np.argmax(off))
            raise Refusal(
                "compute-disagrees",
                f"{where(i)}: train_flops {df['train_flops'][i]:.4g} is {from_flops[i]:.4g} "
                f"PFLOP/s-days, but pflops_days says {df['pflops_days'][i]:.4g} "
                "(1 PFLOP/s-day = 8.64e19 FLOP). Correct or drop one of the two columns.",
            )
    df["pflops_days"] = from_flops


def _require_unit(df: pd.DataFrame, where: Where) -> None:
    """No run takes less than a megaFLOP, and none has taken a billion PFLOP/s-days."""
    for column, wrong, other in (
        ("train_flops", lambda c: c < 1e6, "PFLOP/s-days"),
        ("pflops_days", lambda c: c > 1e9, "FLOP"),
    ):
        bad = np.flatnonzero(wrong(df[column])) if column in df else []
        if len(bad):
            raise Refusal(
                "compute-unit",
                f"{where(bad[0])}: `{column}` is {df[column][bad[0]]:g}, which looks like {other}. "
                "Use `train_flops` for FLOP and `pflops_days` for PFLOP/s-days (8.64e19 FLOP), the "
                "same in all rows.",
            )


def _single_value(df: pd.DataFrame, column: str, what: str) -> str | None:
    if column not in df:
        return None
    values = ["" if pd.isna(v) else str(v).strip() for v in df[column].unique()]
    values = list(dict.fromkeys(v or "(blank)" for v in values))
    if len(values) > 1:
        raise Refusal(
            f"mixed-{column.replace('_', '-')}",
            f"The runs mix {what}: {listed(sorted(values))}. Their losses or compute are not "
            "comparable; keep the rows of one.",
        )
    return None if values[0] == "(blank)" else values[0]


def _without_blanks(df: pd.DataFrame, column: str, where: Where) -> pd.DataFrame:
    """Without a column that is blank throughout; a refusal where some cells are."""
    if column not in df:
        return df
    blank = _blank(df[column])
    if blank.all():
        return df.drop(columns=column)
    if blank.any():
        first = where(np.flatnonzero(blank)[0])
        raise Refusal(
            "missing-value", f"{first}: `{column}` is empty, and in other rows it is not."
        )
    return df


def _blank(values: pd.Series) -> np.ndarray:
    return (values.isna() | (values.astype(str).str.strip() == "")).to_numpy(bool)


def _refuse_mixed_sizes(df: pd.DataFrame) -> None:
    """Seeds of a size are averaged, so they must have about the same compute."""
    compute = df.groupby(["variant", "size"], sort=False)["pflops_days"]
    with np.errstate(over="ignore"):  # an infinite ratio is too large as well
        spread = compute.max() / compute.min()
    if (spread > SAME_SIZE_COMPUTE).any():
        variant, size = spread.idxmax()
        raise Refusal(
            "mixed-size",
            f"Runs of variant '{variant}', size '{size}' differ {spread.max():.3g}-fold in "
            "compute, so they are no seeds of one size. Name their sizes apart.",
        )
    by_size = df.groupby("size", sort=False)["pflops_days"]
    with np.errstate(over="ignore"):
        spread = by_size.max() / by_size.min()
    if (spread > SAME_UNIT).any():
        raise Refusal(
            "compute-unit",
            f"At size '{spread.idxmax()}' the compute of variants differs {spread.max():.3g}-fold, "
            "which no residual connection costs: are some rows in another unit?",
        )


def _sizes_from_compute(df: pd.DataFrame) -> pd.Series:
    """Computes within a per cent are of one size."""
    distinct = np.sort(df["pflops_days"].unique())
    starts = np.r_[True, distinct[1:] > (1 + COMPUTE_AGREEMENT) * distinct[:-1]]
    first = dict(zip(distinct, distinct[starts][np.cumsum(starts) - 1], strict=True))
    df = df.assign(pflops_days=df["pflops_days"].map(first))
    ranks = df.groupby("variant")["pflops_days"].rank(method="dense").astype(int)
    compute = df["pflops_days"].groupby(ranks)
    same_number = df["variant"].groupby(df["variant"]).size().nunique() == 1
    if same_number and (compute.max() <= SAME_SIZE_COMPUTE * compute.min()).all():
        return "#" + ranks.astype(str)
    return df["pflops_days"].map(lambda c: f"{c:.6g} PFLOP/s-days")


def _refuse_duplicates(df: pd.DataFrame, where: Where, has_seed: bool) -> None:
    repeated = df.duplicated(["variant", "size", "seed"], keep=False)
    if not repeated.any():
        return
    variant, size, seed = df.loc[repeated, ["variant", "size", "seed"]].iloc[0]
    same = (df[["variant", "size", "seed"]] == [variant, size, seed]).all(axis=1)
    rows = " and ".join(where(i) for i in df.index[same][:3])
    advice = "Keep one of them." if has_seed else "If they are seeds, add a `seed` column."
    raise Refusal(
        "duplicate-cells",
        f"{rows}: {int(same.sum())} runs of variant '{variant}', size '{size}', seed {seed}. "
        f"{advice}",
    )
