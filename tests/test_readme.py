"""The README keeps up with the code."""

import itertools
import re
import shlex
from pathlib import Path

import pytest

from scaling.cli import app
from scaling.commands.cells import study_cells
from scaling.results import COLUMNS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_results_column_is_documented_in_order():
    table = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| (\w+) \| (.+) \|$", table, flags=re.MULTILINE)[1:]
    assert documented == list(COLUMNS.items())


def test_every_command_is_shown():
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert names <= set(re.findall(r"^scaling ([\w-]+)", README, flags=re.MULTILINE))


COMMANDS = re.findall(
    r"^(?:\$ )?scaling [\w-]+ +(configs/\S+\.yaml.*)$", README, flags=re.MULTILINE
)


@pytest.mark.parametrize("words", COMMANDS)
def test_what_a_shown_command_asks_for_is_there(words):
    study, *options = shlex.split(words, comments=True)
    given = {"--set": [], "--size": [], "--variant": [], "--seed": []}
    for option, value in itertools.pairwise(options):
        given.get(option, []).append(value)
    cells = study_cells(
        ROOT / study, *(given[name] for name in ("--set", "--size", "--variant")),
        [int(seed) for seed in given["--seed"]],
    )[1]  # fmt: skip
    assert cells


def test_no_placeholder_is_left():
    assert not re.search(r"\b[A-Z]+_(TABLE|SENTENCES|OUTPUT)\b|\bTBD\b", README)
