"""Documents from TFDS data sets, read without TensorFlow."""

import contextlib
import hashlib
import io
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from scaling.data import stdlib_sources
from scaling.data.cache import locked
from scaling.data.spec import TfdsSource
from scaling.errors import UserError, closest

STDLIB = "stdlib_sources"
_INFO = "dataset_info.json"


def find_build(source: TfdsSource, data_dir: Path) -> Path | None:
    """The folder of a build on disk (highest version), or None; imports nothing slow.

    Raises:
      UserError: several configs are on disk and the source names none of them.
    """
    folder = data_dir / source.name
    if source.name == STDLIB:
        _refuse_stdlib_options(source)
        folder = folder / stdlib_sources.config_name()
    elif source.config:
        folder = folder / source.config
    else:
        configs = sorted({info.parent.parent.name for info in folder.glob(f"*/*/{_INFO}")})
        if len(configs) > 1:
            raise UserError(
                f"tfds:{source.name} has several configs in {data_dir}: "
                f"name one of {', '.join(f'tfds:{source.name}/{c}' for c in configs)}"
            )
        if configs:
            folder = folder / configs[0]
    versions = [p.parent for p in folder.glob(f"*/{_INFO}") if _version(p.parent.name)]
    if source.name == STDLIB or source.version:
        wanted = source.version or stdlib_sources.VERSION
        versions = [p for p in versions if p.name == wanted]
    return max(versions, key=lambda p: _version(p.name), default=None)


def identity(build: Path, data_dir: Path) -> dict:
    """What changes when the build does: its name, config, version and TFDS's record of it."""
    info = hashlib.sha256((build / _INFO).read_bytes()).hexdigest()
    return {"tfds": build.relative_to(data_dir).parts, "info": info}


def ensure_built(source: TfdsSource, data_dir: Path) -> Path:
    """The folder of a build, made first where there is none.

    Raises:
      UserError: TFDS has no such set, or cannot prepare it (no network, TensorFlow needed, ...).
    """
    with locked(data_dir / f"{source.name}.lock"):
        if build := find_build(source, data_dir):
            return build
        if source.name == STDLIB:
            from scaling.data.stdlib_sources.stdlib_sources_dataset_builder import Builder

            with _quiet():
                builder = Builder(data_dir=data_dir)
                # TFDS would take a folder without its info file for a finished build.
                shutil.rmtree(builder.data_dir, ignore_errors=True)
                builder.download_and_prepare()
        else:
            builder = _prepare_other(source, data_dir)
        return Path(builder.data_dir)


def read_splits(source: TfdsSource, build: Path) -> dict[str, Iterator[bytes]]:
    """UTF-8 documents by split: `train` and `validation`, or `all` where a set has but one.

    A set's own split named validation (or valid, dev, test, in this order) is kept.

    Raises:
      UserError: no train split, no single text feature, or a file format that needs TensorFlow.
    """
    import tensorflow_datasets as tfds

    try:
        with _quiet():
            builder = tfds.builder_from_directory(build)
    except Exception as e:
        raise _damaged(build, e) from e
    field = _text_feature(source, builder.info.features, tfds.features.Text)
    splits = builder.info.splits
    if "train" not in splits:
        raise UserError(f"{_name(source)} has no train split; it has {', '.join(splits)}")
    held_out = next((s for s in ("validation", "valid", "dev", "test") if s in splits), None)
    if held_out is None:
        return {"all": _read(source, builder, "train", field)}
    return {
        "train": _read(source, builder, "train", field),
        "validation": _read(source, builder, held_out, field),
    }


def _read(source: TfdsSource, builder, split: str, field: str) -> Iterator[bytes]:
    import tensorflow_datasets as tfds

    if builder.info.file_format not in tfds.core.FileFormat.with_random_access():
        raise UserError(
            f"{_name(source)} in {builder.data_dir} is stored as "
            f"{builder.info.file_format.value}, which needs TensorFlow to read: "
            "prepare it again with file_format='array_record'"
        )
    try:
        records = builder.as_data_source(split)
        n = len(records)
        for start in range(0, n, 256):
            for record in records.__getitems__(list(range(start, min(start + 256, n)))):
                text = record[field]
                if not isinstance(text, bytes):  # array_record reads a damaged file as empty
                    raise ValueError(f"a record of split {split} has no text")
                yield text
    except Exception as e:  # array_record raises bare exceptions of several kinds
        raise _damaged(Path(builder.data_dir), e) from e


def _text_feature(source: TfdsSource, features, text_type: type) -> str:
    texts = [name for name, feature in features.items() if isinstance(feature, text_type)]
    if source.field:
        if source.field not in texts:
            hint = closest(source.field, texts)
            raise UserError(f"{_name(source)} has no text feature {source.field!r}: {hint}")
        return source.field
    if len(texts) == 1:
        return texts[0]
    if "text" in texts:
        return "text"
    described = ", ".join(f"{n} ({type(f).__name__})" for n, f in sorted(features.items()))
    raise UserError(
        f"{_name(source)} has {len(texts) or 'no'} text features and none is named 'text'; "
        f"it has {described}: name one with {_name(source)}#FEATURE"
    )


def _prepare_other(source: TfdsSource, data_dir: Path):
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder(_name(source).removeprefix("tfds:"), data_dir=data_dir)
        with contextlib.redirect_stdout(sys.stderr):
            builder.download_and_prepare(file_format="array_record")
        return builder
    except tfds.core.DatasetNotFoundError as e:
        raise UserError(
            f"{_name(source)} is neither in {data_dir} nor known to TFDS: check the name, or "
            "set TFDS_DATA_DIR to the folder that holds it"
        ) from e
    except Exception as e:  # a builder runs its author's code and the network: anything may come
        raise UserError(
            f"{_name(source)} is not in {data_dir} and TFDS could not prepare it "
            f"({type(e).__name__}: {_first_line(e)}): prepare it elsewhere with "
            "file_format='array_record' and set TFDS_DATA_DIR to the folder that holds it"
        ) from e


def _damaged(build: Path, error: Exception) -> UserError:
    return UserError(
        f"the data set in {build} cannot be read ({_first_line(error)}): "
        "delete that folder, and it will be made again"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _refuse_stdlib_options(source: TfdsSource) -> None:
    if source.config or source.version or source.field not in (None, "text"):
        raise UserError(
            "tfds:stdlib_sources takes no config, version or feature: its config follows from "
            "the Python that runs it"
        )


def _name(source: TfdsSource) -> str:
    config = f"/{source.config}" if source.config else ""
    version = f":{source.version}" if source.version else ""
    return f"tfds:{source.name}{config}{version}"


def _version(name: str) -> tuple[int, ...]:
    return tuple(map(int, name.split("."))) if re.fullmatch(r"\d+\.\d+\.\d+", name) else ()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps TFDS's prints, bars and warnings off the terminal for a build that takes a second."""
    import tensorflow_datasets as tfds
    from absl import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    tfds.disable_progress_bar()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        tfds.enable_progress_bar()
        logging.set_verbosity(verbosity)
