"""The strings that name a data source and a tokenizer, parsed without reading any data."""

import importlib.util
import re
from dataclasses import dataclass

from scaling.errors import UserError, closest

SCHEMES = ("tfds:NAME[/CONFIG][:VERSION][#FEATURE]", "files:PATH[#FIELD]")
TOKENIZERS = ("bytes", "bpe:VOCAB")
MIN_BPE_VOCAB = 257  # the 256 bytes and the document separator
MAX_BPE_VOCAB = 2**20

_TFDS = re.compile(
    r"(?P<name>[A-Za-z]\w*)(/(?P<config>[\w+.-]+))?(:(?P<version>\d+\.\d+\.\d+))?(#(?P<field>.+))?"
)


@dataclass(frozen=True)
class TfdsSource:
    """A TFDS data set: `tfds:NAME[/CONFIG][:VERSION][#FEATURE]`."""

    name: str
    config: str | None = None
    version: str | None = None
    field: str | None = None


@dataclass(frozen=True)
class FilesSource:
    """A .txt, .jsonl or .parquet file, or a folder of them: `files:PATH[#FIELD]`."""

    path: str
    field: str = "text"


@dataclass(frozen=True)
class TokenizerSpec:
    """`bytes` or `bpe:VOCAB`, with the number of token ids it gives, the separator's among them."""

    kind: str
    vocab_size: int = 256

    def __str__(self) -> str:
        return self.kind if self.kind == "bytes" else f"{self.kind}:{self.vocab_size}"


def parse_source(source: str) -> TfdsSource | FilesSource:
    """The data source that a string names.

    `#` starts the name of the text feature, field or column, so a path cannot contain one.

    Raises:
      UserError: unknown scheme, or a name that TFDS cannot have.
    """
    scheme, colon, rest = str(source).partition(":")
    if scheme == "files" and rest:
        path, _, field = rest.partition("#")
        if path and (field or "#" not in rest):
            return FilesSource(path, field or "text")
    if scheme == "tfds" and (match := _TFDS.fullmatch(rest)):
        return TfdsSource(**match.groupdict())
    if colon and scheme in ("tfds", "files"):
        wanted = SCHEMES[0] if scheme == "tfds" else SCHEMES[1]
        raise UserError(f"data source {source!r} is incomplete or malformed: write {wanted}")
    raise UserError(
        f"data source {source!r} has no known scheme: write {' or '.join(SCHEMES)}, "
        "for example tfds:stdlib_sources"
    )


def parse_tokenizer(tokenizer: str) -> TokenizerSpec:
    """The tokenizer that a string names.

    Raises:
      UserError: unknown name, a vocabulary that is no number or out of range, or `bpe` where the
        `tokenizers` library is not installed.
    """
    kind, colon, vocab = str(tokenizer).partition(":")
    if kind == "bytes" and not colon:
        return TokenizerSpec("bytes")
    if kind != "bpe":
        raise UserError(f"tokenizer {tokenizer!r} is unknown: {closest(tokenizer, TOKENIZERS)}")
    if not vocab.isascii() or not vocab.isdigit():
        raise UserError(f"tokenizer {tokenizer!r} needs a vocabulary size, for example bpe:4096")
    if not MIN_BPE_VOCAB <= int(vocab) <= MAX_BPE_VOCAB:
        raise UserError(
            f"tokenizer {tokenizer!r} asks for {int(vocab)} tokens: "
            f"choose from {MIN_BPE_VOCAB} to {MAX_BPE_VOCAB}"
        )
    if importlib.util.find_spec("tokenizers") is None:
        raise UserError(
            f"tokenizer {tokenizer!r} needs the tokenizers library, which is not installed: "
            "pip install 'residual-scaling-laws[bpe]'"
        )
    return TokenizerSpec("bpe", int(vocab))


def check(source: str, tokenizer: str) -> None:
    """Raises UserError where either string is not valid; reads no data, imports nothing slow."""
    parse_source(source)
    parse_tokenizer(tokenizer)
