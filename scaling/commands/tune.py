"""`scaling tune`: a ladder's learning rates, from sweeps of the baseline or of every variant."""

import os
import shlex
import sys
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from scaling.commands.options import Overrides, Sizes, StudyFile, Variants


def tune(
    study: StudyFile,
    every_variant: Annotated[
        bool, typer.Option("--every-variant", help="Sweep every variant, not the baseline alone.")
    ] = False,
    size: Sizes = None,
    variant: Variants = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(help="Losses are means over these.", show_default="the study's first"),
    ] = None,
    factor: Annotated[
        float, typer.Option(min=1.2, max=10, help="Between neighbouring rates.")
    ] = 2.0,
    widen: Annotated[int, typer.Option(min=0, max=50, help="How often sweeps may be widened.")] = 4,
    ladder: Annotated[
        Path | None, typer.Option(help="The file to write.", show_default="RUN/ladder.yaml")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where run directories go.")] = Path("runs"),
    set_: Overrides = None,
    jobs: Annotated[int, typer.Option(min=1, help="Cells at a time; cores are shared out.")] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the first runs and their cost; train nothing.")
    ] = False,
) -> None:
    """Sweep learning rates a size, and write a ladder with the best of each.

    Three rates about the ladder's are trained, and more until the best has a neighbour on either
    side; a parabola in ln(learning rate) through these three gives the optimum. Swept for the
    baseline alone, as the AttnRes paper did, rates favour it; --every-variant is fair. Results say
    which was done. Runs that are done are not repeated.
    """
    from scaling.commands.cells import study_cells
    from scaling.commands.grid import print_grid
    from scaling.commands.report import print_rows, say
    from scaling.console import make_console
    from scaling.errors import UserError
    from scaling.ladder import earlier, require_writable, write_ladder
    from scaling.learning_rates import rate_of
    from scaling.ledger import Ledger
    from scaling.sweep import rounded, sweep, sweep_cells, tuned

    loaded, _ = study_cells(study, set_)
    if loaded.train.learning_rate:
        raise UserError("train.learning_rate is set, which overrides the ladder; leave it out.")
    if every_variant and variant:
        raise UserError("Give --every-variant or --variant, not both.")
    names = variant or (list(loaded.variants) if every_variant else [loaded.baseline])
    _, chosen = study_cells(study, set_, size, names, seed or loaded.seeds[:1])
    centres = {
        (cell.size, cell.variant): rate_of(loaded, cell.size, cell.variant).learning_rate
        for cell in chosen
    }
    seeds, vocab_size = list(dict.fromkeys(c.seed for c in chosen)), chosen[0].model.vocab_size
    ledger, console = Ledger(out / f"{loaded.name}-tune"), make_console()
    path = ladder or ledger.root / "ladder.yaml"
    before = earlier(path, loaded)
    if dry_run:
        rates = {t: [rounded(c * factor**k) for k in (-1, 0, 1)] for t, c in centres.items()}
        cells = list(chain.from_iterable(sweep_cells(loaded, vocab_size, rates, seeds).values()))
        print_grid(console, cells, ledger.root, jobs)
        return
    require_writable(path)

    def train(rates):
        return _train(console, ledger, sweep_cells(loaded, vocab_size, rates, seeds), jobs)

    sweeps, at_an_end = sweep(centres, factor, widen, train)
    print_rows("Validation loss by learning rate", _rows(sweeps))
    if at_an_end:
        where = ", ".join(f"{v} at {s}" for s, v in at_an_end)
        say([
            f"The best rate still lies at an end for {where}, so no ladder is written. The same "
            "command with a larger --widen goes on."
        ])  # fmt: skip
        raise typer.Exit(1)
    found, best = tuned(before, sweeps)
    print_rows("Best rates", _best_rows(best))
    say(_notes(found, chosen, best))
    write_ladder(path, found, "scaling " + shlex.join(sys.argv[1:]), list(best))
    seen = os.path.relpath(path.absolute(), study.absolute().parent)
    say([f"Wrote {path}. In the study file it replaces sizes and sweep, or the old ladder:"])
    typer.echo(f"ladder: {seen}")


def _train(console, ledger, cells: dict, jobs: int):
    """Trains what is neither done nor diverged, and returns all losses by target and rate."""
    from scaling.commands.report import say
    from scaling.run_study import Job, run_here
    from scaling.sweep import diverged, mean_loss

    whole = list(chain.from_iterable(cells.values()))
    left = [cell for cell in whole if not diverged(ledger, cell)]
    run_here(console, Job(whole[0].variant, whole, left, ledger.root), jobs)
    if not all(ledger.summary(cell)[0] or diverged(ledger, cell) for cell in whole):
        say([f"Some runs failed (scaling status {ledger.root}), so no ladder is written."])
        raise typer.Exit(1)
    sweeps: dict = {}
    for (target, rate), of_rate in cells.items():
        sweeps.setdefault(target, {})[rate] = mean_loss(ledger, of_rate)
    return sweeps


def _rows(sweeps) -> list[dict[str, str]]:
    rates = sorted({rate for losses in sweeps.values() for rate in losses})
    return [
        {"size": size, "variant": variant}
        | {f"{rate:g}": _loss(losses[rate]) if rate in losses else "" for rate in rates}
        for (size, variant), losses in sweeps.items()
    ]


def _loss(loss: float) -> str:
    return "diverged" if loss == float("inf") else f"{loss:.4f}"


def _best_rows(best) -> list[dict[str, str]]:
    return [
        {
            "size": size,
            "variant": variant,
            "learning rate": f"{found.learning_rate:.3g}",
            "loss there": f"{found.loss:.4f}",
            "within 0.01 nats": f"{found.learning_rate / found.tolerance:.2g} to "
            f"{found.learning_rate * found.tolerance:.2g}"
            if found.tolerance
            else "the edge of stability",
        }
        for (size, variant), found in best.items()
    ]


def _notes(study, chosen, best) -> list[str]:
    """The law of the best rates, and whom they favour."""
    from analysis.errors import Refusal
    from analysis.learning_rate import rate_law
    from analysis.render import number
    from scaling.flops import count_params
    from scaling.learning_rates import rate_of

    notes = ["Minima of parabolas in ln(learning rate) through the best rate and its neighbours."]
    for name in dict.fromkeys(variant for _, variant in best):
        cells = {cell.size: cell for cell in chosen if cell.variant == name}
        try:
            law = rate_law(
                [count_params(cell.model)[1] for cell in cells.values()],
                [cell.tokens for cell in cells.values()],
                [best[size, name].learning_rate for size in cells],
            )
        except Refusal as reason:
            notes.append(f"{name}: no law of the best rate. {reason}")
            continue
        of_D = f"tokens {number(law.exponent_of_D)}" if law.exponent_of_D else law.without_D
        notes.append(
            f"{name}: best rate ~ N^a, a {number(law.exponent_of_N)} (non-embedding; {of_D})."
        )
    owners = {(s, v): rate_of(study, s, v).swept_for for s, _ in best for v in study.variants}
    borrowed = sorted({v for (_, v), owner in owners.items() if owner and owner != v})
    unswept = sorted({v for (_, v), owner in owners.items() if not owner})
    if borrowed:
        notes.append(
            f"At the rates of {study.baseline}, which favours it: {', '.join(borrowed)}; "
            "--every-variant is fair."
        )
    if unswept:
        notes.append(f"At rates that no sweep chose: {', '.join(unswept)}.")
    return notes
