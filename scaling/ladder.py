"""Ladder files: sizes with their learning rates, and the sweeps that chose these."""

from pathlib import Path

import yaml

from scaling.files import write_text
from scaling.study import Study
from scaling.version import code_version


def write_ladder(path: Path, study: Study, command: str, swept: list[str]) -> None:
    """Writes the sizes and sweeps of a study as a file for its `ladder` key.

    Args:
      path: the file.
      study: with its sizes at the best rates.
      command: that made it.
      swept: the variants whose rates were swept.
    """
    whom = "every variant" if set(swept) == set(study.variants) else ", ".join(swept)
    header = (
        f"# Learning rates swept for {whom}, by `{command}` (scaling {code_version()}): minima of\n"
        "# parabolas in ln(learning rate). Below, validation loss by learning rate.\n"
    )
    sizes = {name: size.model_dump(exclude_defaults=True) for name, size in study.sizes.items()}
    content = {"sizes": sizes, "learning_rate_sweep": study.learning_rate_sweep}
    write_text(path, header + yaml.safe_dump(content, sort_keys=False, default_flow_style=None))
