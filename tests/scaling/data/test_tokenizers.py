"""Round trips, determinism and byte counts of the tokenizers."""

import numpy as np
import pytest

from scaling.data.spec import TokenizerSpec
from scaling.data.tokenizer import BytePairs, Bytes, train_byte_pairs
from scaling.errors import UserError

TEXT = "naïve Größe 深い 🙂\r\n\tdef f(x):  return x\n<|endoftext|>"
DOCUMENTS = [f"{TEXT} {i} residual stream {i % 7}".encode() for i in range(200)]


@pytest.fixture(scope="module")
def model():
    return train_byte_pairs(TokenizerSpec("bpe", 300), DOCUMENTS)


def test_bytes_round_trip():
    tok = Bytes()
    tokens = tok.encode(TEXT + "\0")
    assert tokens.dtype == np.uint16 and tok.separator not in tokens
    assert tok.decode(tokens) == TEXT
    assert tok.token_bytes[tokens].sum() == len(TEXT.encode())


def test_bpe_round_trip(model):
    tok = BytePairs(model)
    unseen = TEXT + " ħ\x7f new \n"
    tokens = tok.encode(unseen)
    assert tokens.dtype == np.uint16
    assert tok.vocab_size == 300 and tok.separator == 299 and tokens.max() < 299
    assert tok.decode(np.append(tokens, tok.separator)) == unseen
    assert tok.token_bytes[tokens].sum() == len(unseen.encode())
    assert len(tokens) < len(unseen.encode())


def test_bpe_knows_every_byte(model):
    tok = BytePairs(model)
    text = "".join(map(chr, range(1, 0x800)))
    assert tok.decode(tok.encode(text)) == text


def test_bpe_training_is_deterministic(model):
    again = train_byte_pairs(TokenizerSpec("bpe", 300), iter(DOCUMENTS))
    assert BytePairs(again).fingerprint == BytePairs(model).fingerprint
    other = train_byte_pairs(TokenizerSpec("bpe", 299), DOCUMENTS)
    assert BytePairs(other).fingerprint != BytePairs(model).fingerprint


def test_bpe_refuses_too_little_text():
    with pytest.raises(UserError, match=r"bpe:5000 needs more text: .* only 25[7-9] tokens"):
        train_byte_pairs(TokenizerSpec("bpe", 5000), [b"ababab"])
