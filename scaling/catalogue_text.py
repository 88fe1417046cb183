"""The catalogue of residual connections in words: on a terminal, and as docs/variants.md."""

import itertools
import textwrap
from typing import Any

from scaling.catalogue import Entry, Size, entries
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
    console.print(f"[bold]{entry.name}[/bold]: ", end="")
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
        table.add_row(label or "default", _yaml(example["options"]), reduces)
    console.print(table, markup=False)


def _numbers(entry: Entry) -> str:
    io = "n/d" if entry.io_per_token is None else f"{entry.io_per_token:.3g}d"
    init = "PreNorm at init" if entry.prenorm_at_init else "not PreNorm at init"
    return f"{entry.own_params:+,} parameters, {entry.train_flops - 1:+.2%} FLOPs, I/O {io}, {init}"


def _yaml(options: dict) -> str:
    return "{" + ", ".join(f"{k}: {_value(v)}" for k, v in options.items()) + "}"


def _value(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def markdown() -> str:
    """docs/variants.md."""
    size = Size()
    found = entries(size)
    lines = [_HEAD.format(d_model=size.d_model, n_layers=size.n_layers)]
    for family, members in itertools.groupby(found, key=lambda entry: entry.family):
        lines += [f"## {family.capitalize()}", "", *_family_table(list(members)), ""]
    lines += [_PICTURE, "## Options and choices", ""]
    for entry in found:
        lines += _section(entry)
    return "\n".join(lines).rstrip() + "\n"


def _family_table(members: list[Entry]) -> list[str]:
    rows = ["| variant | equation | PreNorm at init | parameters | FLOPs | I/O | source |",
            "|---|---|---|---|---|---|---|"]  # fmt: skip
    for entry in members:
        io = "n/d" if entry.io_per_token is None else f"{entry.io_per_token:.3g}d"
        cells = (
            f"[`{entry.name}`](#{entry.name})", _plain(entry.equation), _reduction(entry),
            f"{entry.own_params:+,}", f"{entry.train_flops - 1:+.2%}", io, _plain(entry.source),
        )  # fmt: skip
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def _reduction(entry: Entry) -> str:
    """Yes, no, or which of the examples differ."""
    others = [label for label, example in entry.examples.items()
              if label and example["prenorm_at_init"] != entry.prenorm_at_init]  # fmt: skip
    word = "yes" if entry.prenorm_at_init else "no"
    return (
        f"{word}, but not: {', '.join(others)}".replace("no, but not", "no, but")
        if others
        else word
    )


def _section(entry: Entry) -> list[str]:
    lines = [f"### {entry.name}", "", f"{entry.summary[0].upper()}{entry.summary[1:]}."]
    lines += ["", entry.notes] if entry.notes else []
    if entry.options:
        lines += ["", entry.about_options, "", "| option | default | valid |", "|---|---|---|"]
        lines += [
            f"| `{name}` | `{about['default']}` | {_plain(about['type'])} |"
            for name, about in entry.options.items()
        ]
        examples = [f"`{_yaml(e['options'])}`" for e in entry.examples.values() if e["options"]]
        if examples:
            lines += ["", "As in " + ", ".join(examples) + "."]
    return [*lines, ""]


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


_HEAD = """# The residual connections

<!-- Made by `scaling variants --markdown > docs/variants.md`; a test keeps it current. -->

`x` or `X` is the residual stream, `h_l` the input of sublayer `l` (attention and MLP are one each),
`f_l` the sublayer with its input norm unless said otherwise, `v_0` the embedding and `v_i` the
output of sublayer `i`, `Norm` an RMSNorm without gain.

*PreNorm at init* says whether the model is PreNorm before its first update: the same loss and the
same gradients of all shared weights, to 1e-5. A "no" is deliberate: the source starts elsewhere.
Parameters and training FLOPs are against PreNorm's at d_model {d_model} and n_layers {n_layers};
I/O is what the mechanism reads and writes per token and sublayer, in units of d_model (Table 1 of
the AttnRes paper counts so). Every variant passes the contract of
[your-own-variant.md](your-own-variant.md), and agrees to 1e-5 with a float64 derivation written
from its equations (`tests/models/derivations`).

Left out: *Dreamer* (arXiv 2601.21582), whose depth attention has no public equations.
"""

_PICTURE = """## What each sublayer reads

![Depth-mixing matrices of all variants](images/mixing.png)

*The contribution of source i (across: the embedding, then every output) to the input of sublayer l
(down; the last row is the readout), in shares of the row's largest.* PreNorm's is all ones; gates
fade what is old; Block's sources come in blocks; windows and dilations leave gaps; methods of n
streams are n-semiseparable; those that act inside of attention (`lime`, `value_residual`) leave the
stream as PreNorm's. Six layers at initialisation, with all mixing parameters moved at random, to
show what a variant can express. What it learns: `scaling mixing-matrix runs/STUDY`.
"""
