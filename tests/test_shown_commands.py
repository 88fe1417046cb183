"""Every command that the README and the pages of docs/ show is understood, and works."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
import yaml

from scaling.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
SHOWN = list(dict.fromkeys(re.findall(r"^(?:\$ )?(scaling .+)$", TEXT, flags=re.MULTILINE)))
IN_TABLES = re.findall(r"(?:`|\"|node=1 )(scaling launch STUDY[^`\"]*)", TEXT)
# Large studies are only dry-run. The rest is run elsewhere: test_docs.py walks through a variant of
# one's own, and tests/scaling/compile compiles.
INSTEAD = {"launch": ["--dry-run"], "tune": ["--dry-run"]}
ELSEWHERE = ("mine:Fading", "study.yaml", "runs/fading", "scaling compile")


def words_of(line: str) -> list[str]:
    return shlex.split(line, comments=True)[1:]


def test_there_are_some():
    assert len(SHOWN) >= 25 and len(IN_TABLES) >= 5


@pytest.mark.parametrize("line", [*SHOWN, *dict.fromkeys(IN_TABLES)])
def test_is_understood(line):
    name, *words = words_of(line)
    known = typer.main.get_command(app).commands
    assert name in known
    known[name].make_context(name, words)  # raises on an option that there is not


@pytest.fixture(scope="module")
def folder(tmp_path_factory, documents) -> Path:
    """Where runs/demo and runs/cpu are studies of a minute, with sizes of the real ones' names."""
    folder = tmp_path_factory.mktemp("shown")
    (folder / "configs").symlink_to(ROOT / "configs")
    size = {"n_layers": 2, "n_heads": 2, "learning_rate": 0.01, "tokens": 1280}
    study = {
        "name": "demo",
        "baseline": "prenorm",
        "data": {"source": f"files:{documents}", "seq_len": 32, "validation_tokens": 1024},
        "sizes": {f"d{d}": {"d_model": d, **size} for d in (8, 16, 48)},
        "variants": {"prenorm": None, "attnres_block": {"n_blocks": 2}, "attnres_full": None},
        "seeds": [0],
        "train": {"batch_size": 4},
    }
    (folder / "small.yaml").write_text(yaml.safe_dump(study, sort_keys=False), encoding="utf-8")
    run(folder, ["launch", "small.yaml", "--jobs", "2"])
    shutil.copytree(folder / "runs" / "demo", folder / "runs" / "cpu")
    return folder


def run(folder: Path, words: list[str]) -> str:
    words = [sys.executable, "-m", "scaling", *words]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("line", [s for s in SHOWN if not any(e in s for e in ELSEWHERE)])
def test_works(line, folder):
    words = words_of(line)
    assert run(folder, [*words, *INSTEAD.get(words[0], [])]).strip()
