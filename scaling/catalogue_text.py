"""The catalogue of residual connections in words: on a terminal."""

import itertools
import textwrap
from typing import Any

from scaling.catalogue import Entry, Size
from scaling.console import make_console, make_table


def print_list(found: list[Entry], size: Size) -> None:
    """A line of words and a line of numbers for each."""
    console = make_console()
    for family, members in itertools.groupby(found, key=lambda entry: entry.family):
        console.print(f"\n[bold]{family}[/bold]")
        for entry in members:
            console.print(f"  {entry.name:17} {entry.summary}", markup=False)
            for text, style in (
                (entry.equation, "cyan"), (_numbers(entry), "dim"), (entry.source, "dim"),
            ):  # fmt: skip
                lines = textwrap.wrap(text, console.width - 20)
                console.print(
                    "\n".join(" " * 20 + line for line in lines), markup=False, style=style
                )
    console.print(
        f"\nAt d_model {size.d_model}, n_layers {size.n_layers}: parameters and training FLOPs "
        "against PreNorm's; I/O: what the mechanism reads and writes per token and sublayer, in "
        "units of d_model.\nOptions of one: scaling variants NAME. Do they hold what they "
        "promise: scaling check-variant NAME.",
        markup=False,
    )


def print_one(entry: Entry, size: Size) -> None:
    """Everything about one."""
    console = make_console()
    console.print(f"{entry.name}: ", end="", style="bold")
    console.print(entry.summary, markup=False)
    console.print(f"  {entry.equation}", markup=False, style="cyan")
    console.print(f"  {entry.source}; {entry.family}", markup=False)
    at = f"at d_model {size.d_model}, n_layers {size.n_layers}"
    console.print(f"  {_numbers(entry)} ({at})", markup=False)
    for text in (entry.notes, entry.about_options if entry.options else ""):
        if text:
            console.print(f"\n{text}", markup=False)
    if not entry.options:
        console.print("\nIt has no options.")
        return
    columns = {"option": "left", "default": "left", "valid": "left"}
    table = make_table("", columns)
    for option, about in entry.options.items():
        table.add_row(option, about["default"], about["type"])
    console.print(table, markup=False)
    table = make_table("", {"example": "left", "options": "left", "PreNorm at init": "left"})
    for label, example in entry.examples.items():
        reduces = "yes" if example["prenorm_at_init"] else "no"
        table.add_row(label or "default", as_yaml(example["options"]), reduces)
    console.print(table, markup=False)


def _numbers(entry: Entry) -> str:
    io = "n/d" if entry.io_per_token is None else f"{entry.io_per_token:.3g}d"
    init = "PreNorm at init" if entry.prenorm_at_init else "not PreNorm at init"
    return f"{entry.own_params:+,} parameters, {entry.train_flops - 1:+.2%} FLOPs, I/O {io}, {init}"


def as_yaml(options: dict) -> str:
    """Options as a study file has them."""
    return "{" + ", ".join(f"{k}: {_value(v)}" for k, v in options.items()) + "}"


def _value(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
