"""Text to token ids and back: raw bytes, or byte-level BPE trained on the train split."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from scaling.data.spec import TokenizerSpec
from scaling.errors import UserError


class Tokenizer(Protocol):
    """What `prepare` needs of a tokenizer.

    `separator` ends each document and stands for no text. `token_bytes` [vocab_size] holds how many
    bytes of UTF-8 each token stands for. Equal `fingerprint`s give equal tokens for equal text.
    """

    vocab_size: int
    separator: int
    fingerprint: str
    token_bytes: np.ndarray

    def encode(self, text: str) -> np.ndarray:
        """Token ids [n] of one document, without its separator."""

    def encode_many(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        """Token ids [n] of each UTF-8 document."""

    def decode(self, tokens: np.ndarray) -> str:
        """The text of tokens [n]; separators give nothing, cut characters give U+FFFD."""


class Bytes:
    """The UTF-8 bytes themselves; byte 0 is the separator, so NULs in the text are dropped."""

    vocab_size = 256
    separator = 0
    fingerprint = "bytes"

    def __init__(self):
        self.token_bytes = np.ones(256, np.uint32)
        self.token_bytes[self.separator] = 0

    def encode(self, text: str) -> np.ndarray:
        return self.encode_many([text.encode()])[0]

    def encode_many(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        return [np.frombuffer(t.replace(b"\0", b""), np.uint8).astype(np.uint16) for t in texts]

    def decode(self, tokens: np.ndarray) -> str:
        raw = np.asarray(tokens).astype(np.uint8).tobytes()
        return raw.replace(b"\0", b"").decode(errors="replace")


class BytePairs:
    """Byte-level BPE of the `tokenizers` library; the last id is the separator.

    The library is not told of the separator, so no text can be mistaken for it.
    """

    def __init__(self, model: str):
        import tokenizers

        self._model = tokenizers.Tokenizer.from_str(model)
        pieces = json.loads(model)["model"]
        vocab = sorted(pieces["vocab"].items(), key=lambda item: item[1])
        self.separator = len(vocab)
        self.vocab_size = len(vocab) + 1
        self.dtype = np.uint16 if self.vocab_size <= 2**16 else np.uint32
        # Byte-level BPE spells each byte as one character.
        self.token_bytes = np.array([len(piece) for piece, _ in vocab] + [0], np.uint32)
        rules = json.dumps([vocab, pieces["merges"]])
        self.fingerprint = "bpe-" + hashlib.sha256(rules.encode()).hexdigest()

    def encode(self, text: str) -> np.ndarray:
        return self.encode_many([text.encode()])[0]

    def encode_many(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        encoded = self._model.encode_batch_fast([t.decode() for t in texts])
        return [np.array(e.ids, self.dtype) for e in encoded]

    def decode(self, tokens: np.ndarray) -> str:
        tokens = np.asarray(tokens)
        return self._model.decode(tokens[tokens != self.separator].tolist())


def train_byte_pairs(spec: TokenizerSpec, documents: Iterable[bytes]) -> str:
    """The trained model as the `tokenizers` library's JSON; a function of the documents' order too.

    Raises:
      UserError: the text is too short for a vocabulary of that size.
    """
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    model = tokenizers.Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=spec.vocab_size - 1,
        min_frequency=2,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    model.train_from_iterator((d.decode() for d in documents), trainer)
    if model.get_vocab_size() != spec.vocab_size - 1:
        raise UserError(
            f"tokenizer {spec} needs more text: the train split gave only "
            f"{model.get_vocab_size() + 1} tokens; ask for at most that, or give more data"
        )
    return model.to_str()


def load_tokenizer(spec: TokenizerSpec, path: Path) -> Tokenizer:
    """The tokenizer of a spec; `path` holds the trained model, for `bpe` only."""
    return Bytes() if spec.kind == "bytes" else BytePairs(path.read_text())
