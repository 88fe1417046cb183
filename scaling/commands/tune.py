"""`scaling tune`: a ladder's learning rates, from sweeps of the baseline or of every variant."""

from pathlib import Path
from typing import Annotated

import typer

from scaling.commands.options import Overrides, Sizes, StudyFile, Variants


def tune(
    study: StudyFile,
    every_variant: Annotated[
        bool, typer.Option(help="Sweep every variant, not the baseline alone.")
    ] = False,
    size: Sizes = None,
    variant: Variants = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Mean over these. [default: the study's first]")
    ] = None,
    factor: Annotated[
        float, typer.Option(min=1.2, max=10, help="Between neighbouring rates.")
    ] = 2.0,
    rounds: Annotated[
        int, typer.Option(min=1, max=20, help="How often a sweep may be widened.")
    ] = 5,
    ladder: Annotated[
        Path | None, typer.Option(help="The ladder to write. [default: RUN/ladder.yaml]")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where run directories go.")] = Path("runs"),
    set_: Overrides = None,
    jobs: Annotated[int, typer.Option(min=1, help="Cells at a time; cores are shared out.")] = 1,
    dry_run: Annotated[
        bool, typer.Option(help="Print the first runs and their cost; train nothing.")
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
    from scaling.ladder import write_ladder
    from scaling.ledger import Ledger
    from scaling.run_study import Job, run_here
    from scaling.sweep import centres, diverged, label, losses_of, sweep_cells, tuned, wanted

    loaded, _ = study_cells(study, set_)
    if loaded.train.learning_rate:
        raise UserError("train.learning_rate is set, which overrides the ladder; leave it out.")
    if every_variant and variant:
        raise UserError("Give --every-variant or --variant, not both.")
    names = variant or (list(loaded.variants) if every_variant else [loaded.baseline])
    _, chosen = study_cells(study, set_, size, names, seed or loaded.seeds[:1])
    targets = list(dict.fromkeys((cell.size, cell.variant) for cell in chosen))
    seeds = list(dict.fromkeys(cell.seed for cell in chosen))
    vocab_size, centre = chosen[0].model.vocab_size, centres(loaded, targets)
    root, console = out / f"{loaded.name}-tune", make_console()
    ledger = Ledger(root)

    rates = {target: wanted({}, centre[target], factor) for target in targets}
    if dry_run:
        print_grid(console, sweep_cells(loaded, vocab_size, rates, seeds), root, jobs)
        return
    for _ in range(rounds):
        cells = sweep_cells(loaded, vocab_size, rates, seeds)
        left = [cell for cell in cells if not diverged(ledger, cell)]
        run_here(console, Job(loaded.baseline, cells, left, root), jobs)
        if not all(ledger.summary(cell)[0] or diverged(ledger, cell) for cell in cells):
            say([f"Some runs failed (scaling status {root}), so no ladder is written."])
            raise typer.Exit(1)
        losses = losses_of(ledger, cells)
        sweeps = {
            (s, v): {rate: losses[s, label(v, rate)] for rate in found}
            for (s, v), found in rates.items()
        }
        more = {t: wanted(sweeps[t], centre[t], factor) for t in targets}
        if not any(more.values()):
            break
        rates = {t: [*rates[t], *more[t]] for t in targets}

    print_rows("Validation loss by learning rate", _rows(sweeps))
    if any(more.values()):
        say([f"After {rounds} rounds some best rate still lies at an end; --rounds allows more."])
    found, best = tuned(loaded, sweeps)
    print_rows("Best rates", _best_rows(best))
    say(_notes(loaded, chosen, best))
    path = ladder or root / "ladder.yaml"
    write_ladder(path, found, f"scaling tune {study}", list(dict.fromkeys(v for _, v in targets)))
    say(
        [f"Wrote {path}. In the study file, for sizes and sweep: ladder: {_seen_from(study, path)}"]
    )


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
            f"{found.learning_rate * found.tolerance:.2g}",
        }
        for (size, variant), found in best.items()
    ]


def _notes(study, chosen, best) -> list[str]:
    """The law of the best rates, and whom they favour."""
    from analysis.errors import Refusal
    from analysis.learning_rate import rate_law
    from analysis.render import number
    from scaling.flops import count_params

    notes = ["Parabolas in ln(learning rate) through the best rate and its two neighbours."]
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
        of_D = f", of tokens {number(law.exponent_of_D)}" if law.exponent_of_D else ""
        notes.append(
            f"{name}: best rate ~ N^a, a {number(law.exponent_of_N)}{of_D} (N non-embedding"
            f"{'' if law.exponent_of_D else '; D goes with N on this ladder'})."
        )
    others = [v for v in study.variants if v not in {variant for _, variant in best}]
    if others:
        notes.append(
            f"Not swept: {', '.join(others)}. They train at the baseline's rates, which favours "
            "it; --every-variant is fair."
        )
    return notes


def _seen_from(study: Path, ladder: Path) -> str:
    """The ladder's path as a study file names it."""
    import os

    return os.path.relpath(ladder.absolute(), study.absolute().parent)
