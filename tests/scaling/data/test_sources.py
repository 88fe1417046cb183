"""Source strings, and every way in which files can be bad."""

import json
import os
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scaling.data import check, prepare
from scaling.data.files import read_documents
from scaling.data.spec import FilesSource, TfdsSource, parse_source, parse_tokenizer
from scaling.data.split import digest, split_by_content
from scaling.errors import UserError


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("tfds:stdlib_sources", TfdsSource("stdlib_sources")),
        ("tfds:wiki40b/en", TfdsSource("wiki40b", "en")),
        ("tfds:ag_news/a-b.c:1.2.3#title", TfdsSource("ag_news", "a-b.c", "1.2.3", "title")),
        ("files:~/a b/c.jsonl", FilesSource("~/a b/c.jsonl")),
        ("files:c:/x.parquet#body", FilesSource("c:/x.parquet", "body")),
    ],
)
def test_source_strings(text, source):
    assert parse_source(text) == source


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hf:wikitext", "tfds:NAME.*or files:PATH"),
        ("stdlib_sources", "no known scheme"),
        ("tfds:", "write tfds:NAME"),
        ("tfds:a b", "write tfds:NAME"),
        ("tfds:name/config:latest", "write tfds:NAME"),
        ("files:", "write files:PATH"),
        ("files:x.txt#", "write files:PATH"),
    ],
)
def test_bad_source_strings(text, says):
    with pytest.raises(UserError, match=says):
        check(text, "bytes")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("byte", "did you mean 'bytes'"),
        ("bytes:256", "unknown"),
        ("bpe", "vocabulary size"),
        ("bpe:4k", "vocabulary size"),
        ("bpe:256", "257"),
        ("bpe:99999999", "choose from"),
    ],
)
def test_bad_tokenizer_strings(text, says):
    with pytest.raises(UserError, match=says):
        check("tfds:stdlib_sources", text)


def test_bpe_without_its_library_names_the_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"residual-scaling-laws\[bpe\]"):
        parse_tokenizer("bpe:4096")


def test_folder_of_three_kinds(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "x.txt").write_text("hidden")
    (tmp_path / "a.txt").write_bytes(b"first\r\n\r\nstill first")
    (tmp_path / "notes.md").write_text("passed over")
    rows = [{"text": "zwei", "n": 1}, {"text": "三"}]
    (tmp_path / "b.jsonl").write_text("\n\n".join(map(json.dumps, rows)))
    pq.write_table(pa.table({"id": [1], "text": ["quatre"]}), tmp_path / "sub" / "c.parquet")
    documents = [d.decode() for d in read_documents(FilesSource(str(tmp_path)))]
    assert documents == ["first\r\n\r\nstill first", "zwei", "三", "quatre"]


def test_other_field(tmp_path):
    pq.write_table(pa.table({"text": ["no"], "body": ["yes"]}), tmp_path / "c.parquet")
    (tmp_path / "d.jsonl").write_text('{"body": "also"}')
    assert list(read_documents(FilesSource(str(tmp_path), "body"))) == [b"yes", b"also"]


@pytest.mark.parametrize(
    ("name", "raw", "says"),
    [
        ("a.txt", "Größe".encode("latin-1"), r"a\.txt is not UTF-8 text \(byte 2 of it\)"),
        ("a.jsonl", b'{"text": "ok"}\n{"text": ', r"a\.jsonl line 2 is not valid JSON"),
        (
            "a.jsonl",
            b'{"text": "ok"}\n\n{"body": "b", "id": 1}',
            r"line 3 .*'text'; it has body, id",
        ),
        ("a.jsonl", b'{"n": ' + b"1" * 5000 + b"}", "line 1 is not valid JSON"),
        ("a.jsonl", b'{"text": 5}', "line 1: field 'text' holds int"),
        ("a.jsonl", b'["text"]', "line 1 is not a JSON object"),
        ("a.jsonl", b'{"text": "\\ud800"}', "line 1 .*surrogate"),
        ("a.jsonl", b'{"text": "\xff"}', "line 1 is not UTF-8"),
        ("a.parquet", b"PAR1 nothing", r"cannot read .*a\.parquet as parquet"),
        ("a.csv", b"text", r"holds no file of the kinds.*\.txt, \.jsonl, \.parquet"),
    ],
)
def test_malformed_files(tmp_path, name, raw, says):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(raw)
    with pytest.raises(UserError, match=says):
        prepare(f"files:{tmp_path / 'in'}", "bytes", tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.npy"))
    assert not list((tmp_path / "cache").rglob("*.tmp-*"))


@pytest.mark.parametrize(
    ("column", "says"), [({"body": ["a"]}, "no field 'text'; it has body"), ({"text": [1]}, "int")]
)
def test_bad_parquet_columns(tmp_path, column, says):
    pq.write_table(pa.table(column), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=says):
        list(read_documents(FilesSource(str(tmp_path / "a.parquet"))))


def test_missing_path_and_wrong_kind(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        prepare(f"files:{tmp_path}/none", "bytes", tmp_path)
    (tmp_path / "a.csv").write_text("x")
    with pytest.raises(UserError, match="not one of the kinds"):
        prepare(f"files:{tmp_path}/a.csv", "bytes", tmp_path)


@pytest.mark.parametrize("target", ["sub/a.txt", "sub"])
def test_unreadable_file(tmp_path, monkeypatch, target):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("x")
    if os.geteuid() == 0:  # root may read anything, so the refusal is played

        def refuse(*args):
            raise PermissionError(13, "Permission denied", target)

        monkeypatch.setattr("pathlib.Path.read_bytes" if "." in target else "os.scandir", refuse)
    else:
        (tmp_path / target).chmod(0)
    with pytest.raises(UserError, match=rf"cannot read .*{re.escape(target)}.*Permission denied"):
        list(read_documents(FilesSource(str(tmp_path))))
    (tmp_path / target).chmod(0o755)


def test_too_few_documents(tmp_path):
    (tmp_path / "in").mkdir()
    for name in "ab":
        (tmp_path / "in" / f"{name}.txt").write_text("the same text")
    with pytest.raises(UserError, match="1 distinct documents with text"):
        prepare(f"files:{tmp_path / 'in'}", "bytes", tmp_path / "cache")
    (tmp_path / "in" / "c.txt").write_text("another")
    assert len(prepare(f"files:{tmp_path / 'in'}", "bytes", tmp_path / "cache").validation)


def test_split_is_by_content():
    digests = [digest(str(i).encode()) for i in range(4000)]
    held_out = split_by_content(digests)
    assert 0.04 < np.mean(held_out) < 0.06
    # A document's split depends on nothing but itself.
    assert split_by_content(digests[:2000]) == held_out[:2000]
    assert split_by_content(digests[::-1]) == held_out[::-1]


@pytest.mark.parametrize("held", [True, False])
def test_two_distinct_documents_fill_both_splits(held):
    tail = bytes(8) if held else b"\xff" * 8
    digests = [bytes([i] * 24) + tail for i in (1, 1, 2)]
    chosen = split_by_content(digests)
    assert len(set(chosen)) == 2 and chosen[0] == chosen[1]
