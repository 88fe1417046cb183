"""`scaling flops`: what each cell of a study costs by calculation, component by component."""

import json
from typing import Annotated

import typer

from scaling.commands.options import Sizes, StudyFile, Variants

# Components of the table, and their headings; those of the default convention come first.
_COUNTED = {
    "attention_projections": "projections",
    "attention_scores": "scores",
    "mlp": "MLP",
    "residual": "residual",
}
_UNITS = ((1e9, ", billions"), (1e6, ", millions"), (1e3, ", thousands"), (1, ""))


def flops(
    study: StudyFile,
    size: Sizes = None,
    variant: Variants = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a field, as in data.seq_len=2048."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Print parameters, FLOPs by component and by convention, and memory; reads no data."""
    from scaling.commands.cells import study_cells
    from scaling.flops import CONVENTIONS

    _, cells = study_cells(study, set_, size, variant, one_seed=True)
    if as_json:
        document = {"conventions": CONVENTIONS, "rows": [_record(cell) for cell in cells]}
        typer.echo(json.dumps(document, indent=2))
        return
    _print(cells)


def _record(cell) -> dict:
    from scaling.flops import account

    names = {"size": cell.size, "variant": cell.variant, "steps": cell.steps}
    return names | account(cell.model, cell.tokens)


def _print(cells: list) -> None:
    import jax

    from scaling.console import make_console
    from scaling.flops import CONVENTIONS

    console = make_console()
    for table in (_components(cells), _conventions(cells), _memory(cells)):
        console.print(table, markup=False)
        console.print()
    model = cells[0].model
    schedule = model.on_platform(jax.default_backend()).implementation
    auto = " (auto here)" if model.implementation == "auto" else ""
    for name, meaning in CONVENTIONS.items():
        console.print(f"{name}: {meaning}", markup=False)
    console.print(
        "Shares are of train_flops, so that the head is not in the sum. I/O: elements that the "
        "residual connection reads and writes per token and sublayer, in units of d = d_model, as "
        "the AttnRes paper counts. Saved: its arrays [batch, seq_len, d] kept for backward, remat "
        f"{model.remat}, implementation {schedule}{auto}. n/d: the variant does not declare it.",
        markup=False,
    )


def _name(cell) -> str:
    return f"{cell.size}/{cell.variant}"


def _components(cells: list):
    from scaling.console import make_table
    from scaling.flops import forward_flops_per_token

    parts = [forward_flops_per_token(cell.model) for cell in cells]
    sums = [sum(part[name] for name in _COUNTED) for part in parts]
    unit, word = next(((u, w) for u, w in _UNITS if min(sums) >= 10 * u), _UNITS[-1])
    columns = {"cell": "left"} | dict.fromkeys([*_COUNTED.values(), "sum", "head"], "right")
    title = f"Forward FLOPs per token{word}, and share of train_flops"
    table = make_table(title, columns)
    for cell, part, whole in zip(cells, parts, sums, strict=True):
        shown = [
            f"{part[name] / unit:,.1f} {part[name] / whole:6.2%}" for name in (*_COUNTED, "head")
        ]
        table.add_row(_name(cell), *shown[:-1], f"{whole / unit:,.1f}", shown[-1])
    return table


def _conventions(cells: list):
    from scaling.console import make_table
    from scaling.flops import CONVENTIONS, PFLOPS_DAY, train_flops

    columns = {"cell": "left"} | dict.fromkeys(CONVENTIONS, "right")
    table = make_table("Training FLOPs of the run by convention, and PFLOP/s-days", columns)
    for cell in cells:
        counts = [train_flops(cell.model, cell.tokens, name) for name in CONVENTIONS]
        table.add_row(_name(cell), *(f"{n:.3e} {n / PFLOPS_DAY:#8.3g}" for n in counts))
    return table


def _memory(cells: list):
    from scaling.console import make_table
    from scaling.flops import account

    headings = ("params", "non-embedding", "residual's own", "tokens", "I/O, d", "saved")
    columns = {"cell": "left"} | dict.fromkeys(headings, "right")
    table = make_table("Parameters, tokens and memory", columns)
    for cell in cells:
        row = account(cell.model, cell.tokens)
        io, saved = row["io_per_token_per_sublayer"], row["saved_activations"]
        table.add_row(
            _name(cell),
            *(f"{row[f'params{part}']:,}" for part in ("", "_non_embedding", "_residual")),
            f"{row['tokens']:,}",
            "n/d" if io is None else f"{io / cell.model.d_model:.2f}",
            "n/d" if saved is None else str(saved),
        )
    return table
