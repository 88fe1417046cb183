"""The pages of docs/ keep up with the code, and the walk-through works as it is written."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from scaling.variants_docs import markdown

DOCS = Path(__file__).parent.parent / "docs"
WALK = (DOCS / "your-own-variant.md").read_text(encoding="utf-8")


def test_the_page_of_variants_is_what_the_variants_say():
    page = (DOCS / "variants.md").read_text(encoding="utf-8")
    assert page == markdown(), "run `make docs`"


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert all((DOCS / link).exists() for link in links if "://" not in link)


def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=DOCS.parent, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "reference" / "analysis.html").read_text(encoding="utf-8")
    assert "compute-equivalent multiplier" in page  # from a docstring
    loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', page)
    assert not loaded  # nothing from elsewhere


def test_the_walk_names_every_check():
    from scaling.contract import CHECKS

    table = WALK.split("| check | that |\n|---|---|\n")[1].split("\n\n")[0]
    assert re.findall(r"^\| ([^|]+?) \|", table, flags=re.MULTILINE) == list(CHECKS)


@pytest.mark.slow
def test_the_walk_works_as_written(tmp_path):
    for name, content in re.findall(r"```\w+ file=(\S+)\n(.*?)```", WALK, flags=re.DOTALL):
        (tmp_path / name).write_text(content, encoding="utf-8")
    commands = re.findall(r"^scaling .+$", WALK, flags=re.MULTILINE)
    assert len(commands) == 5
    for line in commands:
        words = [sys.executable, "-m", "scaling", *shlex.split(line)[1:]]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=os.environ)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        if line.startswith("scaling check-variant"):
            assert "All checks hold." in done.stdout
    results = pd.read_csv(tmp_path / "runs" / "fading" / "results.csv")
    assert len(results) == 8 and (results.status == "done").all()
    assert (tmp_path / "runs" / "fading" / "plots" / "mixing.png").stat().st_size > 10_000
