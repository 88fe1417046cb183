"""All that a page shows, as plain numbers and strings."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from analysis.errors import Refusal
from analysis.page import tables
from analysis.page.cells import cells
from analysis.page.compact import finite
from analysis.page.compute import compute_figures
from analysis.page.dynamics import dynamics, read_cell
from analysis.page.findings import Findings, findings
from analysis.page.logs import Log, read_log
from analysis.page.settings import configuration, provenance
from analysis.page.study import Study
from analysis.page.training import training
from analysis.page.verdict import verdict


def page_data(
    table: pd.DataFrame | Refusal,
    study: Study,
    options: dict | None = None,
    *,
    code_version: str = "",
    document: Callable[[pd.DataFrame], dict] = lambda df: {},
    csv: str = "",
    find: Callable[[pd.DataFrame, str | None, dict], Findings] = findings,
    read: Callable[[Path], Log] = read_log,
    read_inside: Callable[[Path], dict | None] = read_cell,
) -> dict:
    """The page's data; whatever cannot be shown becomes a sentence under `missing`.

    Args:
      table: from `analysis.load`, or its refusal.
      study: cells, labels and conventions.
      options: of `analysis.report.report`.
      code_version: of the code that makes the page.
      document: what fits.json holds beside the report, from the table.
      csv: results.csv as text, for download.
      find, read, read_inside: `findings`, `read_log` and `read_cell`, or these with a memory.
    """
    missing = list(study.problems)
    baseline = study.labels.get("baseline")
    if isinstance(table, Refusal):
        found = Findings(None, None, str(table), [f"No results to analyse: {table}"])
    else:
        found = find(table, baseline, options or {})
    df, report = found.df, found.report
    missing += found.missing
    sections = tables.of_report(report, df) if report else tables.Tables()
    whole = None if isinstance(table, Refusal) else table
    if whole is not None:
        losses = tables.of_losses(whole, baseline, study.labels)
        sections.sections |= losses.sections
        sections.missing += losses.missing
    names = [] if whole is None else list(whole["variant"].unique())
    names = list(dict.fromkeys([*names, *(c.variant for c in study.cells)]))
    base = report.fits.baseline if report else baseline
    names.sort(key=lambda v: v != base)
    index = {v: i for i, v in enumerate(names)}
    curves = training(study, index, read)
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    data = {
        "title": study.name,
        "made": made,
        "variants": names,
        "baseline": base,
        "verdict": verdict(report, df, found.why),
        "missing": missing + sections.missing + curves.pop("notes"),
        "tables": sections.sections,
        "cells": cells(study),
        "grid": [
            {"id": c.id, "size": c.size, "variant": index[c.variant], "seed": str(c.seed)}
            for c in study.cells
        ],
        "compute": None if whole is None else compute_figures(whole, study, base, index),
        "training": curves,
        "dynamics": dynamics(study, read_inside),
        "configuration": configuration(study),
        "provenance": provenance(whole, report, study, code_version, made),
        "downloads": {
            "fits.json": finite({**document(df), **report.to_dict()}) if report else None,
            "results.csv": csv or None,
        },
    }
    return data
