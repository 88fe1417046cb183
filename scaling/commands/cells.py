"""What a command that is given a study works on."""

import os
import sys
from pathlib import Path

from scaling.cells import Cell, expand
from scaling.data import check
from scaling.data.spec import parse_tokenizer
from scaling.errors import UserError
from scaling.study import Study, load_study


def study_cells(
    path: Path,
    overrides: list[str] | None,
    sizes: list[str] | None = None,
    variants: list[str] | None = None,
    seeds: list[int] | None = None,
    one_seed: bool = False,
) -> tuple[Study, list[Cell]]:
    """(study, the cells asked for); reads no data.

    Args:
      path: the study file.
      overrides: `--set` words.
      sizes, variants, seeds: names to restrict the grid to; none means all.
      one_seed: the first seed alone, where no seed changes the answer.

    Raises:
      UserError: the study, its data source or a name given does not exist or does not fit.
    """
    # A residual connection of one's own lies beside the study or here; workers inherit the path.
    sys.path[:0] = [str(path.parent.absolute()), os.getcwd()]
    study = load_study(path, overrides or [])
    check(study.data.source, study.data.tokenizer)
    vocab_size = parse_tokenizer(study.data.tokenizer).vocab_size
    seeds = study.seeds[:1] if one_seed else seeds or []
    try:
        return study, expand(study, vocab_size, sizes or [], variants or [], seeds)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
