"""The cache of prepared data: content, fingerprints, damage, two processes at once."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from scaling.data import prepare
from scaling.errors import UserError


def documents_of(corpus, tokens):
    """The documents of a split, decoded."""
    ends = np.flatnonzero(tokens == corpus.separator)
    starts = np.append(0, ends[:-1] + 1)
    assert ends[-1] == len(tokens) - 1
    return [corpus.decode(tokens[a:b]) for a, b in zip(starts, ends, strict=True)]


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe:300"])
def test_documents_come_back_whole_and_apart(texts, tmp_path, tokenizer):
    folder, documents = texts
    corpus = prepare(f"files:{folder}", tokenizer, tmp_path / "cache")
    train = documents_of(corpus, corpus.train)
    validation = documents_of(corpus, corpus.validation)
    assert sorted(train + validation) == sorted(documents)
    assert not set(train) & set(validation)
    assert isinstance(corpus.train, np.memmap) and corpus.train.dtype == np.uint16
    for name, split in (("train", train), ("validation", validation)):
        stats, tokens = corpus.stats[name], getattr(corpus, name)
        n_bytes = sum(len(d.encode()) for d in split)
        assert stats["documents"] == len(split) and stats["tokens"] == len(tokens)
        assert stats["bytes"] == corpus.n_bytes(tokens) == n_bytes
        gaps = np.diff(np.append(-1, np.flatnonzero(tokens == corpus.separator))) - 1
        assert stats["longest_document"] == gaps.max()
    assert corpus.n_bytes(corpus.train[:100].reshape(4, 25)) == corpus.n_bytes(corpus.train[:100])


def test_nuls_are_dropped_and_empty_documents_skipped(tmp_path):
    lines = [{"text": "a\0b"}, {"text": "\0"}, {"text": ""}, {"text": "c"}]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, lines)))
    corpus = prepare(f"files:{tmp_path / 'x.jsonl'}", "bytes", tmp_path / "cache")
    both = documents_of(corpus, corpus.train) + documents_of(corpus, corpus.validation)
    assert sorted(both) == ["ab", "c"]


def test_second_call_opens_the_first_ones_files(texts, tmp_path):
    first = prepare(f"files:{texts[0]}", "bytes", tmp_path)
    written = (first.directory / "corpus.json").stat().st_mtime_ns
    calls = []
    second = prepare(f"files:{texts[0]}", "bytes", tmp_path, lambda *a: calls.append(a))
    assert not calls and (second.directory / "corpus.json").stat().st_mtime_ns == written
    assert second.stats == first.stats and np.array_equal(second.train, first.train)
    start = time.perf_counter()
    prepare(f"files:{texts[0]}", "bytes", tmp_path)
    assert time.perf_counter() - start < 0.2


def test_progress_counts_documents(texts, tmp_path):
    calls = []
    prepare(f"files:{texts[0]}", "bytes", tmp_path, lambda *a: calls.append(a))
    ends = {description: (done, total) for description, done, total in calls}
    assert sum(done for done, _ in ends.values()) == 60
    assert all(done == total for done, total in ends.values())


def test_fingerprint_is_of_the_content(texts, tmp_path):
    folder, documents = texts
    first = prepare(f"files:{folder}", "bytes", tmp_path / "cache")
    assert len(first.fingerprint) == 16 and int(first.fingerprint, 16)
    # Dates, names and the order of the files say nothing ...
    os.utime(folder / "003.txt", (1, 1))
    (folder / "000.txt").rename(folder / "zzz.txt")
    again = prepare(f"files:{folder}", "bytes", tmp_path / "cache")
    assert again.directory != first.directory and again.fingerprint == first.fingerprint
    # ... nor does the kind of file, but the tokenizer does ...
    lines = [json.dumps({"text": d}) for d in documents]
    (tmp_path / "all.jsonl").write_text("\n".join(lines))
    as_lines = prepare(f"files:{tmp_path / 'all.jsonl'}", "bytes", tmp_path / "cache")
    assert as_lines.fingerprint == first.fingerprint
    as_bpe = prepare(f"files:{folder}", "bpe:260", tmp_path / "cache")
    assert as_bpe.fingerprint != first.fingerprint
    # ... and so does a single letter, the size unchanged.
    path = folder / "003.txt"
    path.write_bytes(b"!" + path.read_bytes()[1:])
    changed = prepare(f"files:{folder}", "bytes", tmp_path / "cache")
    assert changed.fingerprint != first.fingerprint


@pytest.mark.parametrize(
    "name", ["train.npy", "validation.npy", "token_bytes.npy", "corpus.json", "tokenizer.json"]
)
@pytest.mark.parametrize("damage", ["truncate", "remove"])
def test_damaged_entry_is_made_again(texts, tmp_path, name, damage):
    corpus = prepare(f"files:{texts[0]}", "bpe:260", tmp_path)
    train, path = corpus.train.copy(), corpus.directory / name
    if damage == "truncate":
        path.write_bytes(path.read_bytes()[:-7])
    else:
        path.unlink()
    again = prepare(f"files:{texts[0]}", "bpe:260", tmp_path)
    assert path.exists() and again.fingerprint == corpus.fingerprint
    assert np.array_equal(again.train, train)


def test_what_a_killed_process_left_is_removed(texts, tmp_path):
    corpus = prepare(f"files:{texts[0]}", "bytes", tmp_path)
    stale = corpus.directory.with_name(corpus.directory.name + ".tmp-1")
    corpus.directory.rename(stale)
    prepare(f"files:{texts[0]}", "bytes", tmp_path)
    assert corpus.directory.exists() and not stale.exists()


def test_cache_folders(texts, tmp_path, monkeypatch):
    monkeypatch.setenv("SCALING_DATA_DIR", str(tmp_path / "named"))
    corpus = prepare(f"files:{texts[0]}", "bytes")
    assert corpus.directory.is_relative_to(tmp_path / "named" / "tokens")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="set SCALING_DATA_DIR"):
        prepare(f"files:{texts[0]}", "bytes", tmp_path / "file")


AT_ONCE = """
import pathlib, sys, time
from scaling.data import prepare
source, cache, go, ready = sys.argv[1:]
pathlib.Path(ready).touch()
while not pathlib.Path(go).exists():
    time.sleep(0.001)
made = []
corpus = prepare(source, "bytes", cache, lambda *a: (made.append(a), time.sleep(0.05)))
print(corpus.fingerprint, len(corpus.train), bool(made))
"""


def test_two_processes_at_once(texts, tmp_path):
    go, readies = tmp_path / "go", [tmp_path / "ready0", tmp_path / "ready1"]
    arguments = [f"files:{texts[0]}", str(tmp_path / "cache"), str(go)]
    command = [sys.executable, "-c", AT_ONCE, *arguments]
    processes = [
        subprocess.Popen([*command, str(r)], stdout=subprocess.PIPE, text=True) for r in readies
    ]
    deadline = time.monotonic() + 30
    while not all(r.exists() for r in readies) and time.monotonic() < deadline:
        time.sleep(0.01)
    go.touch()
    outputs = [p.communicate(timeout=60)[0].split() for p in processes]
    assert all(p.returncode == 0 for p in processes)
    assert outputs[0][:2] == outputs[1][:2]
    assert sorted(o[2] for o in outputs) == ["False", "True"]
    assert len([p for p in (tmp_path / "cache" / "tokens").iterdir() if p.is_dir()]) == 1
