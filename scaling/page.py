"""From a run directory to the data of its page, again whenever the directory has changed."""

import contextlib
import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pandas as pd

from analysis import Refusal, load
from analysis.page import CellState, Study, page_data
from analysis.page.dynamics import read_cell
from analysis.page.findings import Findings, findings
from analysis.page.logs import Log, read_log
from analysis.reading import locate
from scaling.cells import Cell
from scaling.commands import analyse
from scaling.commands.report import labels_of
from scaling.errors import UserError
from scaling.files import is_held, read_json
from scaling.flops import CONVENTIONS, train_flops
from scaling.ledger import Ledger
from scaling.results import write_results
from scaling.version import code_version

STATES = ("grid.json", "fits.json", "*/config.json", "*/summary.json", "*/failed.json")
MEASURED = ("*/metrics.jsonl", "*/dynamics.parquet", "*/ablation.parquet")
LEAST_PAUSE = 15.0  # seconds between looks at what running cells log
MOST_SHARE = 0.05  # of the time, spent on making the page: the study needs the machine
OPTIONS = {
    "baseline": None, "at": None, "at_loss": None, "holdout": None, "forms": False,
    "resamples": 10_000, "seed": 0, "allow_mixed_data": False,
}  # fmt: skip
KINDS = {
    "baseline": str, "at": float | int, "at_loss": float | int, "holdout": str, "forms": bool,
    "resamples": int, "seed": int, "allow_mixed_data": bool,
}  # fmt: skip


class Pages:
    """The page of one source, which remembers what it has read and fitted."""

    def __init__(self, source: str, baseline: str | None = None, allow_mixed_data: bool = False):
        self._source, self._baseline, self._mixed = source, baseline, allow_mixed_data
        self._run = Path(source) if Path(source).is_dir() else None
        self._read_log = lru_cache(maxsize=4096)(lambda path, _: read_log(path))
        self._read_cell = lru_cache(maxsize=4096)(lambda path, _: read_cell(path))
        self._found: tuple[str, Findings] | None = None
        self._looked, self._took, self._logged = 0.0, 0.0, ""

    def version(self) -> str:
        """Changes when the page would; what is logged counts only every so often."""
        if self._run is None:
            return "fixed"
        pause = max(LEAST_PAUSE, self._took / MOST_SHARE)
        if not self._logged or time.monotonic() - self._looked > pause:
            self._looked, self._logged = time.monotonic(), _stamp(self._run, MEASURED)
        held = [str(lock) for lock in sorted(self._run.glob("*/.lock")) if is_held(lock)]
        return _digest([_stamp(self._run, STATES), self._logged, *held])

    def data(self, live: bool = False) -> dict:
        """All that the page shows now; where it is `live`, with the version that it is of.

        Options are those of the directory's fits.json, so that its numbers are the page's.
        """
        version, started = self.version(), time.monotonic()
        options = _last_options(self._run)
        study = _study(self._run, self._source)
        baseline = self._baseline or options["baseline"] or study.labels.get("baseline")
        if baseline:
            study = replace(study, labels=study.labels | {"baseline": baseline})
        options |= {
            "baseline": baseline,
            "allow_mixed_data": self._mixed or options["allow_mixed_data"],
        }
        data = page_data(
            self._table(options["allow_mixed_data"]), study, _of_report(options),
            code_version=code_version(),
            document=lambda df: analyse.document_head(df, options),
            csv=self._csv(), find=self._findings, read=self._log, read_inside=self._inside,
        )  # fmt: skip
        self._took = time.monotonic() - started
        return data | {"live": version if live else None}

    def _table(self, allow_mixed_data: bool) -> pd.DataFrame | Refusal:
        try:
            self._renew_results()
            return load(self._source, allow_mixed_data=allow_mixed_data)
        except Refusal as reason:
            if self._run is None:  # a name that leads nowhere
                raise
            return reason

    def _renew_results(self) -> None:
        """results.csv is written at the end of a launch; a page may be looked at before."""
        if self._run is None or not (self._run / "grid.json").exists():
            return
        results, summaries = self._run / "results.csv", self._run.glob("*/summary.json")
        with contextlib.suppress(UserError, OSError):  # a damaged grid, a folder of another's
            if not results.exists() or any(_time(s) >= _time(results) for s in summaries):
                write_results(Ledger(self._run))

    def _csv(self) -> str:
        try:
            return locate(self._source).read_text(encoding="utf-8", errors="replace")
        except (Refusal, OSError):
            return ""

    def _findings(self, df: pd.DataFrame, baseline: str | None, options: dict) -> Findings:
        key = _digest([df.attrs["sha256"], str(baseline), json.dumps(options)])
        if self._found is None or self._found[0] != key:
            self._found = key, findings(df, baseline, options)
        return self._found[1]

    def _log(self, path: Path) -> Log:
        return self._read_log(path, _stamp(path.parent, [path.name]))

    def _inside(self, directory: Path) -> dict | None:
        return self._read_cell(directory, _stamp(directory, ["*.parquet"]))


def _study(run: Path | None, source: str) -> Study:
    if run is None:
        return Study(Path(source).stem)
    ledger = Ledger(run)
    try:
        cells = ledger.cells()
    except UserError as reason:
        why = str(reason) if (run / "grid.json").exists() else "The directory has no grid.json."
        return Study(run.name, problems=(f"No cells, curves or settings: {why}",))
    states = tuple(_cell_state(ledger, cell) for cell in cells)
    name = cells[0].study if cells else run.name
    return Study(name, run, states, labels_of(str(run)), dict(CONVENTIONS))


def _cell_state(ledger: Ledger, cell: Cell) -> CellState:
    status = ledger.status(cell)
    try:
        flops = {name: train_flops(cell.model, cell.tokens, name) for name in CONVENTIONS}
    except ValueError:  # of a plug-in that is not here
        flops = {}
    return CellState(
        id=cell.id, size=cell.size, variant=cell.variant, seed=cell.seed, state=status.kind,
        step=status.step, steps=cell.steps, seconds_left=status.seconds_left, note=status.note,
        config=cell.model_dump(mode="json"), tokens_per_step=cell.tokens_per_step, flops=flops,
    )  # fmt: skip


def _last_options(run: Path | None) -> dict:
    """What `scaling fit` was last asked in this directory; its defaults where that is not known."""
    document = read_json(run / "fits.json") if run else None
    given = document.get("options") if isinstance(document, dict) else None
    asked = given if isinstance(given, dict) else {}
    kept = {name: asked[name] for name in OPTIONS if isinstance(asked.get(name), KINDS[name])}
    return OPTIONS | kept


def _of_report(options: dict) -> dict:
    return {
        "at": options["at"],
        "at_loss": options["at_loss"],
        "n_held_out": analyse.held_out(options["holdout"]),
        "n_resamples": options["resamples"],
        "seed": options["seed"],
        "with_forms": options["forms"],
    }


def _stamp(run: Path, patterns: Iterable[str]) -> str:
    """A hash of names, sizes and times; what is written while it looks may be in it or not."""
    lines = []
    for pattern in patterns:
        for path in sorted(run.glob(pattern)):
            try:
                stat = path.stat()
            except OSError:
                continue
            lines.append(f"{path} {stat.st_size} {stat.st_mtime_ns}")
    return _digest(lines)


def _time(path: Path) -> int:
    return path.stat().st_mtime_ns


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
