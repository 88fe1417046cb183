"""Documents from .txt, .jsonl and .parquet files."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from scaling.data.spec import FilesSource
from scaling.errors import UserError

SUFFIXES = (".txt", ".jsonl", ".parquet")


def list_files(source: FilesSource) -> list[Path]:
    """The files a source names, in the order of their paths.

    A folder is searched to any depth; names that start with a dot are passed over.

    Raises:
      UserError: no such path, a file of another kind, or a folder without any of the three kinds.
    """
    root = Path(source.path).expanduser()
    if not os.path.exists(root):
        raise UserError(f"data source files:{source.path} does not exist: check the path")
    if root.is_file():
        if root.suffix not in SUFFIXES:
            raise UserError(f"{root} is not one of the kinds that can be read: {_kinds()}")
        return [root]
    found = []
    for folder, subfolders, names in os.walk(root, onerror=_refuse):
        subfolders[:] = [s for s in subfolders if not s.startswith(".")]
        paths = [Path(folder, n) for n in names if not n.startswith(".")]
        found += [p for p in paths if p.suffix in SUFFIXES and p.is_file()]
    if not found:
        raise UserError(f"folder {root} holds no file of the kinds that can be read: {_kinds()}")
    return sorted(found)


def identity(source: FilesSource) -> dict:
    """What changes when the files do: paths, sizes and dates. Reads no content."""
    stats = [(p, p.stat()) for p in list_files(source)]
    return {
        "files": [(str(p.absolute()), s.st_size, s.st_mtime_ns) for p, s in stats],
        "field": source.field,
    }


def read_documents(source: FilesSource) -> Iterator[bytes]:
    """UTF-8 documents: a .txt file is one, a .jsonl line is one, a .parquet row is one.

    Raises:
      UserError: unreadable or malformed file, with its name and where in it.
    """
    for path in list_files(source):
        try:
            if path.suffix == ".txt":
                yield _utf8(path.read_bytes(), path)
            elif path.suffix == ".jsonl":
                yield from _read_jsonl(path, source)
            else:
                yield from _read_parquet(path, source)
        except OSError as e:
            _refuse(e, path)


def _read_jsonl(path: Path, source: FilesSource) -> Iterator[bytes]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path} line {number}"
            try:
                record = json.loads(_utf8(line, where))
            except ValueError as e:  # also where a number has too many digits
                raise UserError(f"{where} is not valid JSON ({e}): repair or remove it") from e
            if not isinstance(record, dict):
                raise UserError(f"{where} is not a JSON object: write one object a line")
            yield _text(record.get(source.field), list(record), where, source)


def _read_parquet(path: Path, source: FilesSource) -> Iterator[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if source.field not in names:
                raise _no_field(path, names, source)
            row = 0
            for batch in file.iter_batches(batch_size=1024, columns=[source.field]):
                for value in batch.column(0).to_pylist():
                    row += 1
                    yield _text(value, names, f"{path} row {row}", source)
    except pa.ArrowException as e:
        raise UserError(f"cannot read {path} as parquet ({str(e).splitlines()[0]})") from e


def _text(value: object, fields: list[str], where: object, source: FilesSource) -> bytes:
    if source.field not in fields:
        raise _no_field(where, fields, source)
    if not isinstance(value, str):
        kind = type(value).__name__
        raise UserError(f"{where}: field {source.field!r} holds {kind}, but text is needed")
    try:
        return value.encode()
    except UnicodeEncodeError as e:
        raise UserError(f"{where} holds half a surrogate pair, which is no text: {e}") from e


def _no_field(where: object, fields: list[str], source: FilesSource) -> UserError:
    return UserError(
        f"{where} has no field {source.field!r}; it has {', '.join(map(str, fields)) or 'none'}: "
        f"name the text field with files:{source.path}#FIELD"
    )


def _utf8(raw: bytes, where: object) -> bytes:
    try:
        raw.decode()
    except UnicodeDecodeError as e:
        raise UserError(
            f"{where} is not UTF-8 text (byte {e.start} of it): convert it, for example with iconv"
        ) from e
    return raw


def _refuse(error: OSError, path: object = None) -> None:
    raise UserError(
        f"cannot read {path or error.filename} ({error.strerror or error}): "
        "make it readable or leave it out"
    ) from error


def _kinds() -> str:
    return ", ".join(SUFFIXES)
