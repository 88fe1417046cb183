"""Ladder files: sizes with their learning rates, and the sweeps that chose these."""

import os
from pathlib import Path

import yaml

from scaling.errors import UserError
from scaling.files import write_text
from scaling.study import Study
from scaling.version import code_version


def require_writable(path: Path) -> None:
    """Makes sure that a ladder can be written there, before its sweeps are trained.

    Raises:
      UserError: it cannot.
    """
    folder = path if path.is_dir() else next(p for p in path.absolute().parents if p.exists())
    if path.is_dir() or not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UserError(f"--ladder {path}: no file can be written there; give another path.")


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
