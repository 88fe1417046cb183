"""A prepared data set: flat token arrays on disk and what is known of them."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scaling.data.spec import parse_tokenizer
from scaling.data.tokenizer import load_tokenizer

FORMAT = 1  # raise it when the files' meaning changes, so that old entries are made again
RECORD = "corpus.json"
MODEL = "tokenizer.json"


@dataclass(frozen=True)
class Corpus:
    """Every document's tokens, each followed by `separator`, in an order fixed by the content.

    Attributes:
      train, validation: token ids [n], uint16 or uint32, memory-mapped.
      token_bytes: [vocab_size], the bytes of UTF-8 text that a token stands for; 0 for `separator`.
      fingerprint: 16 hex digits of the tokenizer and of both arrays' content.
      stats: by split, `documents`, `tokens` (with separators), `bytes` of text, and
        `longest_document` in tokens (without its separator).
      source, tokenizer: the strings given to `prepare`.
      directory: the folder of the files.
    """

    train: np.ndarray
    validation: np.ndarray
    vocab_size: int
    separator: int
    token_bytes: np.ndarray
    fingerprint: str
    stats: dict
    source: str
    tokenizer: str
    directory: Path

    def n_bytes(self, tokens: np.ndarray) -> int:
        """Bytes of text under tokens of any shape, for bits per byte; separators count nothing."""
        return int(self.token_bytes[np.asarray(tokens)].sum(dtype=np.int64))

    def decode(self, tokens: np.ndarray) -> str:
        """The text of tokens [n]; separators give nothing, cut characters give U+FFFD."""
        return load_tokenizer(parse_tokenizer(self.tokenizer), self.directory / MODEL).decode(
            tokens
        )


def load(directory: Path) -> Corpus | None:
    """The corpus in a folder, or None where a file is missing, truncated or of another format."""
    try:
        record = json.loads((directory / RECORD).read_text())
        if record["format"] != FORMAT:
            return None
        if any((directory / f).stat().st_size != size for f, size in record["files"].items()):
            return None
        return Corpus(
            train=np.load(directory / "train.npy", mmap_mode="r"),
            validation=np.load(directory / "validation.npy", mmap_mode="r"),
            vocab_size=record["vocab_size"],
            separator=record["separator"],
            token_bytes=np.load(directory / "token_bytes.npy"),
            fingerprint=record["fingerprint"],
            stats=record["stats"],
            source=record["source"],
            tokenizer=record["tokenizer"],
            directory=directory,
        )
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, EOFError):
        return None
