"""Data: a source and a tokenizer become a corpus, a corpus becomes batches."""

from scaling.data.corpus import Corpus
from scaling.data.pipeline import epochs, train_batches, validation_batches
from scaling.data.prepare import prepare
from scaling.data.spec import check

__all__ = ["Corpus", "check", "epochs", "prepare", "train_batches", "validation_batches"]
