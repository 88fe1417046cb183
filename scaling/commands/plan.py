"""`scaling plan`: which sizes and how many seeds, before anything is trained."""

from typing import Annotated

import typer

from scaling.commands.options import Overrides, StudyFile


def plan(
    study: StudyFile,
    budget: Annotated[
        float | None, typer.Option(help="FLOPs of all runs together.", show_default="no limit")
    ] = None,
    like: Annotated[
        str | None, typer.Option(help="A finished study whose noise to expect, as runs/demo.")
    ] = None,
    multiplier: Annotated[
        float, typer.Option(help="The compute multiplier that should be told from 1.")
    ] = 1.1,
    set_: Overrides = None,
) -> None:
    """Which sizes, how many seeds, and what interval on a multiplier to expect, by simulation."""
    from analysis import load
    from analysis.plan import TYPICAL, designs, noise_of
    from scaling.commands.cells import study_cells
    from scaling.commands.report import labels_of, print_rows, say
    from scaling.errors import UserError

    loaded, cells = study_cells(study, set_)
    variants = list(dict.fromkeys(cell.variant for cell in cells))
    if len(variants) < 2:
        raise UserError(f"{study} has one variant; a multiplier compares two.")
    if abs(multiplier - 1) < 1e-3:
        raise UserError(f"--multiplier {multiplier:g} is no difference to be told from 1.")
    one_seed = [cell for cell in cells if cell.seed == cells[0].seed]
    compute = dict.fromkeys((cell.size for cell in one_seed), 0.0)
    for cell in one_seed:  # the mean over variants, some of which compute more
        compute[cell.size] += cell.train_flops / len(variants)
    noise = TYPICAL
    if like:
        noise = noise_of(load(like), labels_of(like).get("baseline", loaded.baseline))
    found = designs(compute, len(variants), budget, noise, multiplier)
    print_rows(f"{len(variants)} variants, multiplier {multiplier:g}x", _rows(found[:10]))
    best = found[0]
    say([
        f"Noise of ln L ({noise.source}): {noise.run:.2%} of a run's own, "
        f"{noise.interaction:.2%} of a variant at a size, {noise.size:.2%} that a size's variants "
        f"share; alpha {noise.alpha:.3f}. Intervals: medians over 400 simulated "
        "studies. FLOPs as the study counts them.",
        "The narrowest that the budget allows, for the study file:",
    ])  # fmt: skip
    # A ladder's sizes cannot be taken out one by one, but a launch takes those it is given.
    typer.echo(f"seeds: {list(range(best.n_seeds))}")
    chosen = " ".join(f"--size {size}" for size in best.sizes)
    typer.echo(f"scaling launch {study} {chosen}")


def _rows(found) -> list[dict[str, str]]:
    return [
        {
            "sizes": f"{d.sizes[0]} to {d.sizes[-1]} ({len(d.sizes)})",
            "seeds": str(d.n_seeds),
            "runs": str(d.n_runs),
            "FLOPs": f"{d.flops:.2e}",
            "expected interval": f"{d.low:.3f} to {d.high:.3f}",
            "told from 1": f"{d.resolved:.0%}",
        }
        for d in found
    ]
