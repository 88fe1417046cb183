"""`scaling variants` and `scaling check-variant`: the residual connections there are, and yours."""

from typing import Annotated

import typer

Set = Annotated[
    list[str] | None, typer.Option("--set", help="An option of the variant, as in n_streams=2.")
]


def variants(
    name: Annotated[
        str | None, typer.Argument(help="A variant, or package.module:Class: shows its options.")
    ] = None,
    set_: Set = None,
    d_model: Annotated[int, typer.Option(help="Size that costs are given at.")] = 1024,
    n_layers: Annotated[int, typer.Option(help="Size that costs are given at.")] = 24,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """List the residual connections, or show one: equation, options, cost and source."""
    import json
    from dataclasses import asdict

    from scaling import catalogue, catalogue_text

    size = catalogue.Size(d_model, n_layers)
    if name is None:
        entries = catalogue.entries(size)
        if as_json:
            typer.echo(json.dumps([asdict(entry) for entry in entries], indent=2))
        else:
            catalogue_text.print_list(entries, size)
        return
    entry = catalogue.entry(name, size, options_of(name, set_))
    if as_json:
        typer.echo(json.dumps(asdict(entry), indent=2))
    else:
        catalogue_text.print_one(entry, size)


def check_variant(
    name: Annotated[str, typer.Argument(help="A variant, or package.module:Class.")],
    set_: Set = None,
    derivation: Annotated[
        str | None,
        typer.Option(
            help="package.module:function, the same in float64 NumPy: derive(params, x, f, cfg)."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Check that a residual connection is what it declares; exit code 1 if it is not.

    Without --set, every one of its examples is checked.
    """
    import json

    import jax

    # Four devices for the check that splits a model, unless somebody has asked for some already.
    jax.config.update("jax_num_cpu_devices", max(4, jax.config.jax_num_cpu_devices))
    from scaling.contract.report import check_all, print_report

    given = options_of(name, set_)
    examples = {"": given} if set_ else None
    rows = check_all(name, examples, derivation)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        print_report(rows)
    raise typer.Exit(1 if any(row["result"] == "broken" for row in rows) else 0)


def options_of(name: str, words: list[str] | None) -> dict:
    """The options that `--set key=value` words give, of a variant that exists.

    Raises:
      UserError: no such variant, no such option, or a word that is no key=value.
    """
    import os
    import sys

    from models.residuals import find
    from scaling.errors import UserError, closest
    from scaling.yaml_text import load_yaml

    sys.path.insert(0, os.getcwd())  # where a residual connection of one's own lies
    try:
        valid = find(name).Options.model_fields
    except ValueError as error:
        raise UserError(str(error)) from error
    options = {}
    for word in words or []:
        key, equals, value = word.partition("=")
        if not equals:
            raise UserError(f"--set {word!r} is no key=value, as in n_streams=2.")
        if key not in valid:
            hint = closest(key, valid) if valid else "it has none"
            raise UserError(f"{name} has no option {key!r}; {hint}.")
        options[key] = load_yaml(value)
    return options
