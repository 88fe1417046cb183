"""YAML as a study means it: 1e-4 is a number, and a key stands once."""

import re
from typing import Any

import yaml


def load_yaml(text: str) -> Any:
    """The value of a YAML text.

    Raises:
      yaml.YAMLError: the text is no YAML, or has a key twice.
    """
    return yaml.load(text, Loader=_Loader)


class _Loader(yaml.SafeLoader):
    """YAML in which a repeated key is an error rather than an overwrite."""

    def construct_mapping(self, node, deep=False):
        named = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        keys = [self.construct_object(key, deep=True) for key in named]
        repeated = [key for key in keys if keys.count(key) > 1]
        if repeated:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {repeated[0]!r} stands twice", node.start_mark
            )
        return super().construct_mapping(node, deep)


# YAML 1.1 wants a point before, and a sign after, the e.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), "-+0123456789"
)
