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
