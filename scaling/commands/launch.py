"""`scaling launch`: train the cells of a study that are not done yet."""

from pathlib import Path
from typing import Annotated

import typer

from scaling.commands.options import Overrides, Sizes, StudyFile, Variants


def launch(
    study: StudyFile,
    out: Annotated[Path, typer.Option(help="Where run directories go.")] = Path("runs"),
    size: Sizes = None,
    variant: Variants = None,
    seed: Annotated[list[int] | None, typer.Option(help="Only this seed; repeatable.")] = None,
    set_: Overrides = None,
    jobs: Annotated[int, typer.Option(min=1, help="Cells at a time; cores are shared out.")] = 1,
    dry_run: Annotated[
        bool, typer.Option(help="Print the grid and its cost; train nothing.")
    ] = False,
    coordinator: Annotated[
        str | None, typer.Option(help="HOST:PORT of process 0, where no cluster tells it.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(help="Processes on all hosts; 1 ignores the cluster.")
    ] = None,
    process_id: Annotated[int | None, typer.Option(help="Which of them this one is.")] = None,
    timeout: Annotated[
        float,
        typer.Option(min=1, max=86_400, help="Seconds without progress that end several hosts."),
    ] = 600,
) -> None:
    """Train the grid of a study; finished cells are skipped and interrupted ones resumed.

    On several hosts, run the same command on each: under srun and on a TPU pod they find each
    other, elsewhere give --coordinator, --processes and --process-id. --out must be on a file
    system that all of them share.
    """
    from scaling.commands.cells import study_cells
    from scaling.console import make_console
    from scaling.errors import UserError
    from scaling.places import find_place
    from scaling.run_study import Job, run_here

    loaded, cells = study_cells(study, set_, size, variant, seed)
    _, whole = study_cells(study, set_)
    place = find_place(coordinator, processes, process_id)
    if place is not None and jobs > 1:
        raise UserError(
            f"--jobs {jobs} is for one host: on several, all devices train one cell at a time. "
            "Leave --jobs out."
        )
    console = make_console()
    commands, trackers = _next(loaded.baseline, whole), tuple(loaded.trackers)
    job = Job(loaded.baseline, whole, cells, out / loaded.name, commands, trackers)
    if dry_run:
        import jax

        from scaling.commands.grid import print_grid
        from scaling.sharding import check

        check(cells, jax.devices())
        print_grid(console, cells, job.root, jobs)
        return
    if place is not None:
        from scaling.hosts import run_on_host

        raise typer.Exit(run_on_host(place, timeout, job))

    failed = run_here(console, job, jobs)
    raise typer.Exit(1 if failed else 0)


def _next(baseline: str, cells: list) -> tuple[str, ...]:
    """The commands that these cells' results support."""
    from analysis.cells import MIN_SIZES  # pandas takes a while

    residuals = {cell.variant: cell.model.residual.name for cell in cells}
    commands = ["results", "plot", "report"]
    if len({cell.size for cell in cells}) >= MIN_SIZES:
        commands.insert(1, "fit")
    others = {name for label, name in residuals.items() if label != baseline}
    if {"attnres_full", "attnres_block"} <= others:
        commands.insert(-2, "gap")
    return tuple(commands)
