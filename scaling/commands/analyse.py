"""`scaling fit` and `scaling gap`: what a finished study says.

Heavy imports are inside the functions so that `scaling --help` stays fast. An `analysis.Refusal` is
left to the command line's main, which prints it as one sentence and exits with code 2.
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from scaling.commands.options import Baseline, Json, MixedData, Source
from scaling.commands.report import labels_of, opened, print_rows, say

SCHEMA_VERSION = 3  # described in docs/method.md

At = Annotated[
    float | None, typer.Option(help="Compute in PFLOP/s-days at which to report loss, multiplier.")
]
HoldOut = Annotated[
    str | None,
    typer.Option(help="largest:N predicts each variant's N largest sizes from the others."),
]


def fit(
    source: Source,
    as_json: Json = False,
    baseline: Baseline = None,
    at: At = None,
    at_loss: Annotated[
        float | None, typer.Option(help="Loss in nats at which to compare, instead of a compute.")
    ] = None,
    holdout: HoldOut = None,
    forms: Annotated[
        bool, typer.Option("--forms", help="Other laws and objectives, side by side.")
    ] = False,
    resamples: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="Of the bootstraps in fits.json; 0 for none.")
    ] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstraps.")] = 0,
    allow_mixed_data: MixedData = False,
) -> None:
    """Fit a power law a variant and report compute multipliers with paired intervals."""
    from analysis.record import plain
    from analysis.report import report

    n_held_out = held_out(holdout)
    df, baseline = opened(source, baseline, allow_mixed_data)
    found = report(
        df, baseline, at, at_loss,
        n_held_out=n_held_out, n_resamples=resamples, seed=seed, with_forms=forms,
    )  # fmt: skip
    options = {
        "baseline": baseline, "at": at, "at_loss": at_loss, "holdout": holdout, "forms": forms,
        "resamples": resamples, "seed": seed, "allow_mixed_data": allow_mixed_data,
    }  # fmt: skip
    document = plain(document_head(df, options) | found.to_dict())
    written = _write_json(source, "fits.json", document)  # or why it could not be
    if as_json:
        typer.echo(json.dumps(document, indent=2))
        return
    _say_report(found, df)
    if written:
        say([written])


def _say_report(found, df) -> None:
    from analysis import fit_report as words

    print_rows("Scaling laws L = A C^-alpha", words.law_rows(found.fits))
    say(words.law_notes(found.fits, df, found.practice))
    if found.fits.baseline is None:
        say(["No multipliers: no variant is called prenorm or baseline. Name one: --baseline."])
    elif not (found.multipliers or found.refusals):
        say([f"No multipliers: '{found.fits.baseline}' is the only variant with finished runs."])
    if found.multipliers:
        title = f"Compute multipliers over {found.fits.baseline}"
        print_rows(title, words.multiplier_rows(found))
    say([words.multiplier_verdict(m) for m in found.multipliers], bold=True)
    say([words.refusal_verdict(v, r) for v, r in found.refusals.items()], bold=True)
    say([words.printed_sentence(p) for p in found.printed])
    say(words.multiplier_notes(found.multipliers))
    if found.robustness:
        print_rows("How far they move", words.robustness_rows(found.robustness))
        say(words.robustness_notes(found.robustness))
    if found.forms:
        print_rows("Laws and objectives", words.form_rows(found.forms))
        say(words.form_notes(found.forms))
    if found.holdout:
        print_rows("The largest sizes, predicted", words.holdout_rows(found.holdout))
        say(words.holdout_notes(found.holdout))


def gap(
    source: Source,
    as_json: Json = False,
    baseline: Baseline = None,
    full: Annotated[str | None, typer.Option(help="The Full variant's label.")] = None,
    block: Annotated[str | None, typer.Option(help="The Block variant's label.")] = None,
    allow_mixed_data: MixedData = False,
) -> None:
    """Compare Full and Block: loss gap by size, and the share of Full's gain that Block keeps."""
    from analysis import gap as gap_of
    from analysis import render
    from analysis.record import plain

    df, baseline = opened(source, baseline, allow_mixed_data)
    full = full or labels_of(source).get("attnres_full", "attnres_full")
    block = block or labels_of(source).get("attnres_block", "attnres_block")
    g = gap_of(df, full=full, block=block, baseline=baseline)
    if as_json:
        options = {"baseline": baseline, "full": full, "block": block}
        options["allow_mixed_data"] = allow_mixed_data
        typer.echo(json.dumps(plain(document_head(df, options) | {"gap": g.to_dict()}), indent=2))
        return
    print_rows(f"{block} - {full} by size", render.gap_rows(g))
    say(render.gap_verdict(g), bold=True)
    say(render.gap_notes(g, df))


def held_out(holdout: str | None) -> int:
    """N of largest:N; 0 where nothing is held out."""
    from scaling.errors import UserError

    if holdout is None:
        return 0
    kind, _, number = holdout.partition(":")
    if kind != "largest" or not number.isdecimal() or not 1 <= int(number[:4]) <= 999:
        raise UserError(f"--holdout {holdout!r} must be largest:N, N sizes of each, as largest:2.")
    return int(number)


def document_head(df, options: dict) -> dict:
    from scaling.version import code_version

    return {
        "schema_version": SCHEMA_VERSION,
        "code_version": code_version(),
        "source": df.attrs["source"],
        "sha256": df.attrs["sha256"],
        "flops_convention": df.attrs["flops_convention"],
        "loss_column": df.attrs["loss_column"],
        "excluded": df.attrs["excluded"],
        "options": options,
    }


def _write_json(source: str, name: str, document: dict) -> str | None:
    if not Path(source).is_dir():
        return None
    from scaling.files import write_json

    path = Path(source) / name
    try:
        write_json(path, document)
    except OSError as error:
        return f"{path} was not written: {error.strerror}."
    return f"Wrote {path}"
