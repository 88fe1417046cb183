"""What has become of each cell: how many are done, which run, and why some failed."""

from analysis.page.study import CellState, Study
from analysis.page.tables import table

KINDS = ("done", "running", "pending", "failed")


def cells(study: Study) -> dict:
    """Counts by state, and a table of each state that a person may have to act on."""
    of = {kind: [c for c in study.cells if c.state == kind] for kind in KINDS}
    tables = []
    if of["failed"]:
        rows = [{"cell": _key(c), "step": _steps(c), "reason": c.note} for c in of["failed"]]
        tables.append(table("failed-table", "Failed cells", rows))
    if of["running"]:
        rows = [
            {"cell": _key(c), "step": _steps(c), "time left": duration(c.seconds_left)}
            for c in of["running"]
        ]
        tables.append(table("running-table", "Running cells", rows))
    if of["pending"]:
        noted = any(c.note for c in of["pending"])
        rows = [
            {"cell": _key(c), "step": _steps(c)} | ({"note": c.note} if noted else {})
            for c in of["pending"]
        ]
        tables.append(table("pending-table", "Pending cells", rows))
    return {"counts": {kind: len(of[kind]) for kind in KINDS}, "tables": tables}


def _key(c: CellState) -> str:
    return f"{c.size} / {c.variant} / seed {c.seed}"


def _steps(c: CellState) -> str:
    return f"{c.step}/{c.steps}"


def duration(seconds: float | None) -> str:
    """A duration for people, from seconds."""
    if seconds is None:
        return "not known yet"
    for limit, unit, size in ((100, "s", 1), (6000, "min", 60), (48 * 3600, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86400:.3g} d"
