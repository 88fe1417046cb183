"""Ladder files: sizes with their learning rates, and the sweeps that chose these."""

import os
from pathlib import Path

import yaml

from scaling.errors import UserError
from scaling.files import write_text
from scaling.study import Size, Study, read_yaml
from scaling.version import code_version


def earlier(path: Path, study: Study) -> Study:
    """The study, with the rates and sweeps of the ladder that is at `path`, if there is one.

    Raises:
      UserError: there is something else, or a ladder of other sizes; nothing is overwritten.
    """
    if not path.exists():
        return study
    found = read_yaml(path) if path.is_file() else {}
    if set(found) != {"sizes", "learning_rate_sweep"}:
        raise UserError(
            f"{path} is there and no ladder; it is left as it is. Give another --ladder."
        )
    try:
        there = {name: Size.model_validate(size) for name, size in found["sizes"].items()}
    except (AttributeError, ValueError):
        there = {}
    if {n: _shape(s) for n, s in there.items()} != {n: _shape(s) for n, s in study.sizes.items()}:
        raise UserError(f"{path} holds a ladder of other sizes; give another --ladder.")
    sweeps = {"sizes": there, "learning_rate_sweep": found["learning_rate_sweep"]}
    return study.model_copy(update=sweeps)


def _shape(size: Size) -> dict:
    return size.model_dump(exclude={"learning_rate", "learning_rates"})


def require_writable(path: Path) -> None:
    """Makes sure that a ladder can be written there, before its sweeps are trained.

    Raises:
      UserError: it cannot.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writable = os.access(path.parent, os.W_OK)
    except OSError:
        writable = False
    if path.is_dir() or not writable:
        raise UserError(f"{path}: no ladder can be written there; give another --ladder or --out.")


def write_ladder(path: Path, study: Study, command: str, swept: list[tuple[str, str]]) -> None:
    """Writes the sizes and sweeps of a study as a file for its `ladder` key.

    Args:
      path: the file.
      study: with its sizes at the best rates.
      command: that made it.
      swept: the sizes and variants whose rates were swept just now.
    """
    sizes, variants = (", ".join(dict.fromkeys(names)) for names in zip(*swept, strict=True))
    header = (
        f"# {command}\n"
        f"# scaling {code_version()}: rates of {variants} at {sizes}, minima of parabolas in\n"
        "# ln(learning rate). Below, what was tried: validation loss by learning rate.\n"
    )
    content = {
        "sizes": {name: s.model_dump(exclude_defaults=True) for name, s in study.sizes.items()},
        "learning_rate_sweep": study.learning_rate_sweep,
    }
    write_text(path, header + yaml.safe_dump(content, sort_keys=False, default_flow_style=None))
