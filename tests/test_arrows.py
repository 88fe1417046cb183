"""Imports point one way: kernels <- models <- scaling, and analysis stands alone."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FORBIDDEN = {
    "kernels": {"models", "scaling", "analysis", "flax", "optax"},
    "models": {"scaling", "analysis"},
    "analysis": {"kernels", "models", "scaling", "jax", "flax", "optax", "orbax"},
}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("package", FORBIDDEN)
def test_a_package_imports_only_what_lies_below_it(package):
    files = list((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        assert not imported(path) & FORBIDDEN[package], path
    used = set().union(*(imported(path) for path in files))
    assert ("jax" in used) == (package != "analysis")
