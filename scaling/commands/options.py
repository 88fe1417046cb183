"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

StudyFile = Annotated[Path, typer.Argument(help="A study file, such as configs/demo.yaml.")]
Sizes = Annotated[list[str] | None, typer.Option(help="Only this size; may be repeated.")]
Variants = Annotated[list[str] | None, typer.Option(help="Only this variant; repeatable.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a field, as in train.learning_rate=3e-3."),
]
Source = Annotated[
    str, typer.Argument(help="Run directory, CSV file, or published table (attnres_table2).")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON at full precision instead.")]
Baseline = Annotated[
    str | None,
    typer.Option(
        help="Variant to compare with.", show_default="the study's, else prenorm or baseline"
    ),
]
MixedData = Annotated[
    bool, typer.Option("--allow-mixed-data", help="Fit runs with different data fingerprints.")
]
