"""A small standard library, and documents to prepare."""

import random

import pytest

from scaling.data.stdlib_sources import listing


def make_documents(n: int, seed: int = 0) -> list[str]:
    """`n` distinct texts of one to three hundred words, some of them not ASCII."""
    rng = random.Random(seed)
    words = [
        "residual",
        "stream",
        "naïve",
        "Größe",
        "深い",
        "🙂",
        "attention",
        "def",
        "return x",
        "\n",
    ]
    return [f"{i} " + " ".join(rng.choices(words, k=rng.randint(1, 300))) for i in range(n)]


@pytest.fixture
def texts(tmp_path):
    """A folder of 60 .txt files, one a copy of another; returns (folder, documents)."""
    documents = make_documents(59)
    documents.append(documents[7])
    folder = tmp_path / "texts"
    folder.mkdir()
    for i, document in enumerate(documents):
        (folder / f"{i:03}.txt").write_bytes(document.encode())
    return folder, documents


@pytest.fixture
def small_stdlib(tmp_path, monkeypatch):
    """Stands in for the standard library; returns its folder and {path: text} of what counts."""
    root = tmp_path / "stdlib"
    counted = {f"pkg{i % 3}/m{i}.py": t for i, t in enumerate(make_documents(80, seed=1))}
    counted["pkg0/copy.py"] = counted["pkg1/m1.py"]
    skipped = {
        "site-packages/a.py": b"x = 1",
        "dist-packages/b.py": b"x = 2",
        "pkg0/__pycache__/c.py": b"x = 3",
        "config-3.11-arch/d.py": b"x = 4",
        "_sysconfigdata__linux_.py": b"x = 5",
        "pkg1/latin1.py": "# Größe".encode("latin-1"),
        "pkg1/empty.py": b"",
        "pkg2/data.txt": b"not Python",
    }
    for path, raw in {**{p: t.encode() for p, t in counted.items()}, **skipped}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(raw)
    monkeypatch.setattr(listing, "stdlib_dir", lambda: root)
    monkeypatch.setattr(listing, "MIN_BYTES", 10_000)
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    return root, counted
