"""YAML in which what looks like a number is one."""

import pytest
import yaml

from scaling.yaml_text import load_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-4", 1e-4), ("1e6", 1e6), ("-3.E+2", -300.0), ("3.0e-2", 0.03), ("12", 12), ("e4", "e4"),
     ("1e", "1e"), ("[1e-3, on]", [1e-3, True])],
)  # fmt: skip
def test_numbers(text, value):
    assert load_yaml(text) == value and type(load_yaml(text)) is type(value)


def test_a_key_stands_once():
    with pytest.raises(yaml.YAMLError, match="'a' stands twice"):
        load_yaml("a: 1\na: 2")
