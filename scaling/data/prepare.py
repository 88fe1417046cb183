"""From a data source to flat token arrays, once; later calls only open the files."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from scaling.data import corpus, files, tfds_sets
from scaling.data.cache import cache_root, locked, tfds_dir, writing
from scaling.data.corpus import MODEL, RECORD, Corpus
from scaling.data.documents import Spool
from scaling.data.spec import FilesSource, TokenizerSpec, parse_source, parse_tokenizer
from scaling.data.tokenizer import Tokenizer, load_tokenizer, train_byte_pairs
from scaling.errors import UserError

Progress = Callable[[str, int, int | None], None]
_CHUNK = 256  # documents encoded at a time


def prepare(
    source: str,
    tokenizer: str,
    cache_dir: str | os.PathLike | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """The corpus of a source under a tokenizer, made where the cache has none.

    A cache entry is found by what is cheap to see: of files their paths, sizes and dates, of a TFDS
    set its name, config, version and info file. A damaged entry (a missing or truncated file) is
    made again. Several processes may call this at once.

    Args:
      source: `tfds:NAME[/CONFIG][:VERSION][#FEATURE]` or `files:PATH[#FIELD]`.
      tokenizer: `bytes` or `bpe:VOCAB`.
      cache_dir: default `$SCALING_DATA_DIR`, else a folder under ~/.cache.
      progress: called with (what is done, documents so far, documents in all or None).

    Raises:
      UserError: anything wrong with the strings, the data or the cache folder.
    """
    parsed, spec = parse_source(source), parse_tokenizer(tokenizer)
    progress = progress or (lambda description, done, total: None)
    root = cache_root(cache_dir)
    with writing(root):
        if isinstance(parsed, FilesSource):
            identity = files.identity(parsed)
        else:
            build = tfds_sets.find_build(parsed, tfds_dir(root))
            if build is None:
                progress(f"building {source}", 0, None)
                build = tfds_sets.ensure_built(parsed, tfds_dir(root))
            identity = {**tfds_sets.identity(build, tfds_dir(root)), "field": parsed.field}
        entry = root / "tokens" / _key(identity, spec)
        if found := corpus.load(entry):
            return found
        with locked(entry.with_suffix(".lock")):
            if found := corpus.load(entry):  # another process made it while this one waited
                return found
            if isinstance(parsed, FilesSource):
                splits = {"all": files.read_documents(parsed)}
            else:
                splits = tfds_sets.read_splits(parsed, build)
            _make(entry, splits, str(source), spec, progress)
    made = corpus.load(entry)
    if made is None:
        raise UserError(f"{entry} was removed while it was being made: run again")
    return made


def _key(identity: dict, spec: TokenizerSpec) -> str:
    text = json.dumps([corpus.FORMAT, identity, str(spec)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _make(
    entry: Path,
    splits: dict[str, Iterable[bytes]],
    source: str,
    spec: TokenizerSpec,
    progress: Progress,
) -> None:
    """Writes a cache entry beside its place and renames it into it; the caller holds the lock."""
    for stale in entry.parent.glob(f"{entry.name}.tmp-*"):
        shutil.rmtree(stale)  # of a process that was killed: a living one would hold the lock
    folder = entry.with_name(f"{entry.name}.tmp-{os.getpid()}")
    folder.mkdir()
    try:
        with Spool(folder / "text") as spool:
            for name, documents in splits.items():
                for document in documents:
                    spool.add(document, name)
                    if len(spool) % _CHUNK == 0:
                        progress("reading", len(spool), None)
            train, validation = spool.ordered(source)
            if spec.kind == "bpe":
                progress(f"training {spec}", 0, None)
                (folder / MODEL).write_text(train_byte_pairs(spec, map(spool.read, train)))
            tok = load_tokenizer(spec, folder / MODEL)
            content = hashlib.sha256(tok.fingerprint.encode())
            stats = {}
            for name, chosen in (("train", train), ("validation", validation)):
                documents = _reported(map(spool.read, chosen), name, len(chosen), progress)
                stats[name] = _write_tokens(folder / f"{name}.npy", documents, tok, content)
        (folder / "text").unlink()
        np.save(folder / "token_bytes.npy", tok.token_bytes)
        record = {
            "format": corpus.FORMAT,
            "source": source,
            "tokenizer": str(spec),
            "vocab_size": tok.vocab_size,
            "separator": tok.separator,
            "fingerprint": content.hexdigest()[:16],
            "stats": stats,
            "files": {p.name: p.stat().st_size for p in sorted(folder.iterdir())},
        }
        (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n")
        shutil.rmtree(entry, ignore_errors=True)
        folder.rename(entry)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reported(
    documents: Iterable[bytes], name: str, total: int, progress: Progress
) -> Iterator[bytes]:
    for done, document in enumerate(documents):
        if done % _CHUNK == 0:
            progress(f"tokenizing {name}", done, total)
        yield document
    progress(f"tokenizing {name}", total, total)


def _write_tokens(path: Path, documents: Iterable[bytes], tok: Tokenizer, content) -> dict:
    """Streams tokens into an .npy file and a hash; returns the split's stats."""
    dtype = np.dtype(np.uint16 if tok.vocab_size <= 2**16 else np.uint32)
    stats = {"documents": 0, "tokens": 0, "bytes": 0, "longest_document": 0}
    with path.open("wb") as file:
        _write_header(file, dtype, 0)
        for texts in _chunks(documents, _CHUNK):
            for text, tokens in zip(texts, tok.encode_many(texts), strict=True):
                raw = np.append(tokens, tok.separator).astype(dtype).tobytes()
                file.write(raw)
                content.update(raw)
                stats["documents"] += 1
                stats["tokens"] += len(tokens) + 1
                stats["bytes"] += len(text)
                stats["longest_document"] = max(stats["longest_document"], len(tokens))
        content.update(f"{dtype}{stats['tokens']}".encode())
        # The header leaves room for its count to grow, so that it can be filled in at the end.
        file.seek(0)
        _write_header(file, dtype, stats["tokens"])
    return stats


def _write_header(file, dtype: np.dtype, n_tokens: int) -> None:
    fields = {"descr": dtype.str, "fortran_order": False, "shape": (n_tokens,)}
    np.lib.format.write_array_header_1_0(file, fields)


def _chunks(items: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    chunk = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
