"""The page's tables: rows and notes of `scaling fit`, `gap` and `results`, word for word."""

from dataclasses import dataclass, field

import pandas as pd

from analysis import fit_report, render
from analysis.differences import differences
from analysis.errors import Refusal
from analysis.gap import gap
from analysis.report import Report


@dataclass
class Tables:
    """Tables by section, and sentences on those that there are not."""

    sections: dict[str, list[dict]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def add(
        self, section: str, name: str, caption: str, rows: list[dict], notes: list[str],
        claims: list[str] = (),
    ) -> None:  # fmt: skip
        """One table of one section; nothing where there is nothing to say."""
        if rows or notes or claims:
            made = table(name, caption, rows, notes, claims)
            self.sections.setdefault(section, []).append(made)


def table(
    name: str, caption: str, rows: list[dict[str, str]], notes: list[str] = (),
    claims: list[str] = (),
) -> dict:  # fmt: skip
    """A table as the page takes it; the first column names the row, claims come before notes."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return {
        "id": name,
        "caption": caption,
        "columns": columns,
        "rows": [[str(row.get(column, "-")) for column in columns] for row in rows],
        "claims": list(claims),
        "notes": list(notes),
    }


def of_report(found: Report, df: pd.DataFrame) -> Tables:
    """Laws, multipliers and how far they move; forms and predictions where they were asked for."""
    tables, words = Tables(), fit_report
    base = found.fits.baseline
    tables.add(
        "laws", "laws-table", "Scaling laws L = A C^-alpha",
        words.law_rows(found.fits), words.law_notes(found.fits, df, found.practice),
    )  # fmt: skip
    claims = [words.multiplier_verdict(m) for m in found.multipliers]
    claims += [words.refusal_verdict(v, r) for v, r in found.refusals.items()]
    claims += [words.printed_sentence(p) for p in found.printed]
    tables.add(
        "multipliers", "multipliers-table", f"Compute multipliers over {base}",
        words.multiplier_rows(found), words.multiplier_notes(found.multipliers), claims,
    )  # fmt: skip
    tables.add(
        "multipliers", "robustness-table", "How far they move",
        words.robustness_rows(found.robustness), words.robustness_notes(found.robustness),
    )  # fmt: skip
    tables.add(
        "laws", "forms-table", "Laws and objectives",
        words.form_rows(found.forms), words.form_notes(found.forms),
    )  # fmt: skip
    if found.holdout:
        tables.add(
            "laws", "holdout-table", "The largest sizes, predicted",
            words.holdout_rows(found.holdout), words.holdout_notes(found.holdout),
        )  # fmt: skip
    return tables


def of_losses(df: pd.DataFrame, baseline: str | None, labels: dict[str, str]) -> Tables:
    """Losses by size with paired differences, and the gap between Full and Block."""
    tables = Tables()
    names = {name: labels.get(name, name) for name in ("attnres_full", "attnres_block")}
    try:
        g = gap(df, names["attnres_full"], names["attnres_block"], baseline)
        tables.add(
            "gap", "gap-table", f"{g.block} - {g.full} by size",
            render.gap_rows(g), render.gap_notes(g, df), render.gap_verdict(g),
        )  # fmt: skip
    except Refusal as reason:
        if any(name in set(df["variant"]) for name in names.values()):  # else nobody asks
            tables.missing.append(f"No gap between Full and Block: {reason}")
    name = baseline or "prenorm"
    rows = differences(df, name)
    notes = render.difference_notes(rows, df, name, 0.95)
    caption = f"Mean loss by size, and difference to {name}"
    tables.add("sizes", "differences-table", caption, render.difference_rows(rows, name), notes)
    return tables
