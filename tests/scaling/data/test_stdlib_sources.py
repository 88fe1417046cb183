"""Our own TFDS data set, on a small standard library and once on the real one."""

import shutil
import sys
import time

import pytest
import tensorflow_datasets as tfds

from scaling.data import prepare
from scaling.data.cache import tfds_dir
from scaling.data.split import digest
from scaling.data.stdlib_sources import config_name, read_sources
from scaling.errors import UserError


def test_sources_that_count(small_stdlib):
    _, counted = small_stdlib
    assert dict(read_sources()) == counted


def test_build_is_a_tfds_data_set(small_stdlib, tmp_path):
    _, counted = small_stdlib
    corpus = prepare("tfds:stdlib_sources", "bytes", tmp_path)
    builder = tfds.builder_from_directory(
        tmp_path / "tfds" / "stdlib_sources" / config_name() / "1.0.0"
    )
    assert builder.info.file_format == tfds.core.FileFormat.ARRAY_RECORD
    splits = {
        split: {r["path"].decode(): r["text"].decode() for r in builder.as_data_source(split)}
        for split in ("train", "validation")
    }
    assert splits["train"] | splits["validation"] == counted
    hashes = {split: {digest(t.encode()) for t in d.values()} for split, d in splits.items()}
    assert hashes["validation"] and not hashes["train"] & hashes["validation"]
    for split, documents in splits.items():
        assert corpus.stats[split]["documents"] == len(documents)
        assert corpus.stats[split]["bytes"] == sum(len(t.encode()) for t in documents.values())


def test_another_python_has_another_build(small_stdlib, tmp_path, monkeypatch):
    first = prepare("tfds:stdlib_sources", "bytes", tmp_path)
    monkeypatch.setattr("platform.python_version", lambda: "9.9.9")
    second = prepare("tfds:stdlib_sources", "bytes", tmp_path)
    assert second.directory != first.directory and second.fingerprint == first.fingerprint
    root, _ = small_stdlib
    (root / "extra.py").write_text("x = 1\n")
    third = prepare("tfds:stdlib_sources", "bytes", tmp_path)
    assert third.fingerprint != first.fingerprint
    assert len(list((tmp_path / "tfds" / "stdlib_sources").iterdir())) == 3


@pytest.mark.parametrize("damage", ["info", "record"])
def test_damaged_build(small_stdlib, tmp_path, damage):
    first = prepare("tfds:stdlib_sources", "bytes", tmp_path)
    build = tmp_path / "tfds" / "stdlib_sources" / config_name() / "1.0.0"
    shutil.rmtree(first.directory)
    if damage == "info":
        (build / "dataset_info.json").unlink()
        assert prepare("tfds:stdlib_sources", "bytes", tmp_path).fingerprint == first.fingerprint
    else:
        record = next(build.glob("*-train.array_record-*"))
        record.write_bytes(record.read_bytes()[: record.stat().st_size // 2])
        with pytest.raises(UserError, match="delete that folder"):
            prepare("tfds:stdlib_sources", "bytes", tmp_path)


def test_too_little_text(small_stdlib, tmp_path, monkeypatch):
    monkeypatch.setattr("scaling.data.stdlib_sources.listing.MIN_BYTES", 10**9)
    with pytest.raises(UserError, match="needs 1000000000: use a Python with its library unpacked"):
        prepare("tfds:stdlib_sources", "bytes", tmp_path)


def test_no_options(tmp_path):
    with pytest.raises(UserError, match="takes no config"):
        prepare("tfds:stdlib_sources/py3.11.7", "bytes", tmp_path)


def test_tfds_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "elsewhere"))
    assert tfds_dir(tmp_path) == tmp_path / "elsewhere"
    monkeypatch.delenv("TFDS_DATA_DIR")
    assert tfds_dir(tmp_path) == tmp_path / "tfds"


@pytest.mark.slow
def test_real_standard_library(tmp_path, monkeypatch):
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    start = time.perf_counter()
    corpus = prepare("tfds:stdlib_sources", "bytes", tmp_path)
    assert time.perf_counter() - start < 20
    train, validation = corpus.stats["train"], corpus.stats["validation"]
    assert train["bytes"] > 10_000_000
    assert 0.01 < validation["bytes"] / train["bytes"] < 0.12
    assert train["documents"] + validation["documents"] == len(read_sources())
    assert "tensorflow" not in sys.modules
