"""`scaling compile`: every cell's training step through the compiler of hardware not here."""

import json
from typing import Annotated

import typer

from scaling.commands.options import Sizes, StudyFile, Variants


def compile_study(
    study: StudyFile,
    topology: Annotated[
        str | None,
        typer.Option(
            help="Compile for v4:2x2x1, v5e:4x4, v5p:4x4x4, v6e:2x4, tpu7x:2x2x1 (chips, any shape "
            "of theirs; needs the TPU compiler and no TPU) or cpu:8. Without it: the devices here."
        ),
    ] = None,
    size: Sizes = None,
    variant: Variants = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a field, as in 'mesh={fsdp: 8}'."),
    ] = None,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Search accumulate x remat for the fastest step that fits."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Compile the training steps of a study: do they fit, and what do they cost.

    From shapes alone: nothing is trained and no data are read. Exit code 1 if a cell does not fit.
    """
    from scaling.commands.cells import study_cells
    from scaling.compile import topology as topologies
    from scaling.compile.report import is_good
    from scaling.console import make_console
    from scaling.errors import UserError

    wanted = topologies.parse(topology) if topology else None
    loaded, cells = study_cells(study, set_, size, variant, one_seed=True)
    # Before anything else asks for devices.
    devices = topologies.devices(wanted) if wanted else topologies.local_devices()
    if devices[0].platform == "gpu":
        raise UserError(
            "scaling compile reads programs for TPU and CPU; those for GPU leave their matrix "
            "products to libraries, which it cannot see into. Give a --topology."
        )
    name = wanted.name if wanted else "the devices here"
    document = _document(loaded, cells, devices, name, tune, make_console(stderr=True))
    if as_json:
        typer.echo(json.dumps(document, indent=2))
    else:
        from scaling.compile.report import print_report
        from scaling.compile.tune import print_tuned

        console = make_console()
        print_report(console, document)
        if tune:
            print_tuned(console, document)
    raise typer.Exit(0 if all(is_good(row) for row in document["cells"]) else 1)


def _document(loaded, cells: list, devices: list, name: str, tune: bool, console) -> dict:
    from dataclasses import asdict

    import jax

    from scaling.compile.build import compile_cell
    from scaling.compile.report import add_ratios
    from scaling.compile.tune import tune_cell
    from scaling.device import chip_of
    from scaling.errors import UserError
    from scaling.sharding import check, resolve_mesh

    # Programs for devices that are not here would fill the cache and never come out of it.
    jax.config.update("jax_enable_compilation_cache", False)
    check(cells, devices)
    meshes = [resolve_mesh(cell, len(devices)).model_dump() for cell in cells]
    known, rows, tuned = chip_of(devices[0]), [], []
    if tune and known is None:
        raise UserError(
            f"--tune looks for what fits, and the memory of {devices[0].device_kind!r} is not "
            "known; give a --topology of TPUs."
        )
    for number, cell in enumerate(cells, 1):
        prefix = f"[{number}/{len(cells)}] {cell.size}/{cell.variant}"
        if tune:
            best, tried = tune_cell(cell, devices, lambda s, p=prefix: _say(console, f"{p}: {s}"))
            rows.append(best)
            tuned.append(tried)
        else:
            _say(console, f"{prefix}: compiling for {name} ...")
            rows.append(compile_cell(cell, devices))
    rows = [row | {"mesh": mesh} for row, mesh in zip(rows, meshes, strict=True)]
    add_ratios(rows, loaded.baseline)
    return {
        "study": loaded.name,
        "topology": name,
        "device_kind": devices[0].device_kind,
        "n_devices": len(devices),
        "mesh": meshes[0] if all(mesh == meshes[0] for mesh in meshes) else None,
        "chip": asdict(known) if known else None,
        "jax_version": jax.__version__,
        "cells": rows,
        "tune": tuned or None,
    }


def _say(console, text: str) -> None:
    console.print(text, markup=False, highlight=False)
