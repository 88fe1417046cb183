"""The README keeps up with the code."""

import re
from pathlib import Path

from scaling.cli import app
from scaling.results import COLUMNS

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_every_results_column_is_documented_in_order():
    table = README.split("## results.csv")[1].split("##")[0]
    documented = re.findall(r"^\| (\w+) \| (.+) \|$", table, flags=re.MULTILINE)[1:]
    assert documented == list(COLUMNS.items())


def test_every_command_is_shown():
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert names <= set(re.findall(r"^scaling (\w+) ", README, flags=re.MULTILINE))


def test_no_placeholder_is_left():
    assert not re.search(r"\b[A-Z]+_(TABLE|SENTENCES)\b|\bTBD\b", README)
