"""Every notebook runs from top to bottom and is stored without outputs."""

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
names = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


def test_every_script_has_its_notebook():
    assert [path.with_suffix(".py") for path in NOTEBOOKS] == sorted(FOLDER.glob("*.py"))
    assert len(NOTEBOOKS) == 4


@names
def test_notebook_runs(path):
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    resources = {"metadata": {"path": str(path.parent.parent)}}
    nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources=resources
    ).execute()


@names
def test_notebook_is_stored_without_outputs(path):
    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    assert cells
    assert all(not c["outputs"] and c["execution_count"] is None for c in cells)


@names
def test_notebook_is_its_script(path):
    """Pairs by jupytext: the script is what is edited."""
    jupytext = pytest.importorskip("jupytext", reason="jupytext is not installed")
    script, notebook = (jupytext.read(path.with_suffix(suffix)) for suffix in (".py", ".ipynb"))
    assert [(c.cell_type, c.source) for c in script.cells] == [
        (c.cell_type, c.source) for c in notebook.cells
    ], f"jupytext --sync {path}"
