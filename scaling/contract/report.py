"""All checks of one residual connection, one row a check and example."""

import importlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from models.residuals import find
from models.residuals.plug_in import check_plug_in
from scaling.console import make_console, make_table, progress_bar
from scaling.contract import CHECKS, ContractError, NotApplicableError, Subject, runs
from scaling.errors import UserError, sentence


def check_all(
    name: str, examples: dict[str, dict] | None = None, derivation: str | None = None
) -> list[dict[str, Any]]:
    """Rows of example, check, result (holds, broken, not applicable), note and seconds.

    Args:
      name: built in, or `package.module:Class`.
      examples: label -> options; the class's own by default.
      derivation: `package.module:function`, see `runs.derivation`.

    Raises:
      UserError: what is named cannot be imported, or the options do not fit.
    """
    examples = find(name).examples if examples is None else examples
    if not examples:
        raise UserError(
            f"{name} has no examples, so that nothing is checked; give it some, or --set"
        )
    subjects = {label: Subject(name, options) for label, options in examples.items()}
    for label, subject in subjects.items():
        try:
            check_plug_in(subject.cfg())
        except ValueError as error:
            raise UserError(f"{name}{label and f' ({label})'}: {sentence(error)}.") from error
    checks = dict(CHECKS)
    if derivation is not None:
        checks["derivation"] = partial(runs.derivation, derive=_import(derivation))
    rows = []
    with progress_bar(make_console(stderr=True)) as show, _strict():
        for label, subject in subjects.items():
            what = f"checking {name}" + (f", {label}" if label else "")
            for number, (check, run) in enumerate(checks.items()):
                show(what, number, len(checks))
                rows.append({"example": label, "check": check, **_result(run, subject)})
            show(what, len(checks), len(checks))
    return rows


def print_report(rows: list[dict]) -> None:
    """The rows as a table, and what they come to."""
    console = make_console()
    several = len({row["example"] for row in rows}) > 1
    columns = {"example": "left"} if several else {}
    table = make_table("", columns | {"check": "left", "": "left", "found": "left"})
    for row in rows:
        mark = {"holds": "ok", "broken": "FAIL"}.get(row["result"], "-")
        table.add_row(*[row["example"] or "default"][:several], row["check"], mark, row["note"])
    console.print(table, markup=False)
    broken = sum(row["result"] == "broken" for row in rows)
    console.print(f"{broken} of {len(rows)} checks failed." if broken else "All checks hold.")


def _result(run: Callable, subject: Subject) -> dict:
    start = time.perf_counter()
    try:
        result, note = "holds", run(subject)
    except NotApplicableError as reason:
        result, note = "not applicable", str(reason)
    except ContractError as error:
        result, note = "broken", str(error)
    except (Exception, SystemExit) as error:  # whatever the user's code may do
        text = (str(error).strip().splitlines() or [""])[0][:200]
        result, note = "broken", type(error).__name__ + (text and f": {text}")
    return {"result": result, "note": note, "seconds": round(time.perf_counter() - start, 1)}


def _strict():
    """No silent dtype promotion, which would make fp32 of a bfloat16 stream."""
    return jax.numpy_dtype_promotion("strict")


def _import(place: str) -> Callable:
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:  # whatever the user's file may do
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"--derivation {place!r} cannot be imported: {reason}") from error
