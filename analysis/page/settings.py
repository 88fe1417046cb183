"""What was run: settings of the grid by what they depend on, and where the results come from."""

from collections.abc import Callable

import pandas as pd

from analysis.page.study import CellState, Study
from analysis.page.tables import table
from analysis.report import Report

_OPTIONS = "model.residual.options."  # of a variant, where nothing else is called as they are
_LABELS = ("study", "size", "variant", "seed")
_ORIGINS = {
    "code_version": "code that trained",
    "jax_version": "JAX",
    "device_kind": "device",
    "n_devices": "devices",
    "n_processes": "processes",
    "mesh": "mesh",
    "data_fingerprint": "data fingerprint",
}


def configuration(study: Study) -> list[dict]:
    """Tables of settings: of all cells, by size, by variant, by both, and the rest."""
    cells = [c for c in study.cells if c.config]
    if not cells:
        return []
    flat = {c.id: _flat(c.config) for c in cells}
    keys = list(dict.fromkeys(key for settings in flat.values() for key in settings))
    groups: list[tuple[str, str, Callable[[CellState], tuple]]] = [
        ("settings-all", "Settings of all cells", lambda c: ()),
        ("settings-size", "Settings by size", lambda c: (c.size,)),
        ("settings-variant", "Settings by variant", lambda c: (c.variant,)),
        ("settings-both", "Settings by size and variant", lambda c: (c.size, c.variant)),
        ("settings-cell", "Settings by cell", lambda c: (c.size, c.variant, str(c.seed))),
    ]
    tables = []
    for name, caption, group in groups:
        of_group = [key for key in keys if _determined(key, cells, flat, group)]
        keys = [key for key in keys if key not in of_group]
        if of_group:
            rows = _rows(of_group, cells, flat, group)
            tables.append(table(name, caption, rows))
    return tables


def _flat(config: dict, path: str = "") -> dict[str, str]:
    found = {}
    for key, value in config.items():
        if not path and key in _LABELS:
            continue
        if isinstance(value, dict):
            found |= _flat(value, f"{path}{key}.")
        elif value not in (None, ""):
            found[f"{path}{key}".removeprefix(_OPTIONS)] = _text(value)
    return found


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _determined(key: str, cells: list[CellState], flat: dict, group: Callable) -> bool:
    values: dict[tuple, set] = {}
    for c in cells:
        values.setdefault(group(c), set()).add(flat[c.id].get(key))
    return all(len(v) == 1 for v in values.values())


def _rows(keys: list[str], cells: list[CellState], flat: dict, group: Callable) -> list[dict]:
    firsts = {group(c): c for c in reversed(cells)}
    order = list(dict.fromkeys(group(c) for c in cells))
    if order == [()]:
        settings = flat[firsts[()].id]
        return [{"setting": key, "value": settings[key]} for key in keys]
    rows = []
    for g in order:
        c = firsts[g]
        known = {"size": c.size, "variant": c.variant, "seed": str(c.seed)}
        names = {n: v for n, v in known.items() if v in g} if len(g) < 3 else known
        rows.append(names | {key: flat[c.id].get(key, "-") for key in keys})
    return rows


def provenance(
    df: pd.DataFrame | None, found: Report | None, study: Study, code_version: str, made: str
) -> list[dict]:
    """Where the numbers come from, and whose sweeps chose the learning rates."""
    rows = [{"what": "page made", "value": f"{made} by version {code_version}"}]
    if df is not None:
        own = df.attrs.get("flops_convention")
        meaning = study.conventions.get(own or "", "")
        rows += [
            {"what": "table", "value": str(df.attrs.get("source", ""))},
            {"what": "its sha256", "value": str(df.attrs.get("sha256", ""))},
            {"what": "loss", "value": f"{df.attrs.get('loss_column')}, nats"},
            {"what": "FLOP convention",
             "value": (own or "not stated in the table") + (f": {meaning}" if meaning else "")},
        ]  # fmt: skip
        rows += [
            {"what": name, "value": _counted(df[column])}
            for column, name in _ORIGINS.items()
            if column in df and df[column].notna().any()
        ]
    tables = [table("provenance-table", "Where the numbers come from", rows)]
    if found is not None:
        rows = [
            {"variant": variant, "rates from a sweep of": owner or "no sweep", "runs": str(n)}
            for variant, owners in found.practice.swept_for.items()
            for owner, n in owners.items()
        ]
        tables.append(
            table(
                "rates-table",
                "Whose sweeps chose the learning rates",
                rows,
                [] if rows else ["The table does not say whose sweep chose the rates."],
            )
        )
    return tables


def _counted(values: pd.Series) -> str:
    """Distinct values, with how many runs have each where there are several."""
    counts = values.fillna("not recorded").astype(str).value_counts()
    if len(counts) == 1:
        return str(counts.index[0])
    return ", ".join(f"{value} ({n} runs)" for value, n in counts.items())
