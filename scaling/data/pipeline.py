"""Batches of token windows: training in an order of (seed, step) alone, validation a fixed set."""

from collections.abc import Iterator

import numpy as np

from scaling.data.corpus import Corpus
from scaling.errors import UserError

# One thread runs ahead of the training step; more only compete with it for the interpreter.
READ_THREADS = 1
READ_AHEAD = 8  # batches


def train_batches(
    corpus: Corpus,
    *,
    seq_len: int,
    batch_size: int,
    seed: int,
    start_step: int = 0,
    rows: np.ndarray | None = None,
    read_threads: int = READ_THREADS,
) -> Iterator[dict[str, np.ndarray]]:
    """Endless batches {"tokens": int32 [batch_size, seq_len + 1]}, the one for `start_step` first.

    With `rows`, numbers of rows of the batch, only those are read and given, in that order; which
    windows make up a batch does not depend on who reads which of its rows.

    Window k holds tokens k * seq_len to (k + 1) * seq_len inclusive, so inputs are `[:, :-1]` and
    targets `[:, 1:]`, and the targets of all windows are the train tokens after the first, each
    once (less than seq_len tokens at the end are left over). Every epoch reads all windows in a new
    order; a batch may hold the end of one epoch and the start of the next.

    The iterator is Grain's: `get_state()` and `set_state()` hold the number of the next batch.

    Raises:
      UserError: sizes that are no positive numbers, too few tokens for one batch, or a seq_len
        longer than every document.
    """
    import grain
    import grain.experimental

    _check_sizes(seq_len=seq_len, batch_size=batch_size)
    if seed < 0 or start_step < 0:
        raise UserError(f"seed {seed} and start_step {start_step} must not be negative")
    longest = corpus.stats["train"]["longest_document"]
    if seq_len > longest:
        raise UserError(
            f"seq_len {seq_len} is longer than the longest document ({longest} tokens): "
            f"choose at most {longest}, or data with longer documents"
        )
    n_windows = _n_windows(corpus.train, seq_len)
    if n_windows < batch_size:
        raise UserError(
            f"the train split holds {len(corpus.train)} tokens, and one batch of {batch_size} "
            f"windows of {seq_len} needs {batch_size * seq_len + 1}: "
            "give more data, or a smaller batch_size or seq_len"
        )

    train = np.asarray(corpus.train)  # indexing an np.memmap makes a memmap each time, slowly
    mine = slice(None) if rows is None else rows

    def gather(windows: list[int]) -> dict[str, np.ndarray]:
        return {"tokens": _windows(train, np.asarray(windows)[mine], seq_len)}

    # ds.seed() hashes: Grain adds the epoch to shuffle's own seed, so with shuffle(seed=seed)
    # epoch 1 of seed 0 would be epoch 0 of seed 1.
    batches = (
        grain.MapDataset.range(n_windows)
        .seed(seed)
        .shuffle()
        .repeat()
        # Without drop_remainder the endless length overflows at batch_size 1.
        .batch(batch_size, drop_remainder=True, batch_fn=gather)
    )
    options = grain.ReadOptions(num_threads=read_threads, prefetch_buffer_size=READ_AHEAD)
    iterator = iter(batches.to_iter_dataset(options))
    grain.experimental.set_next_index(iterator, start_step)
    return iterator


def validation_batches(
    corpus: Corpus,
    *,
    seq_len: int,
    batch_size: int,
    n_tokens: int | None = None,
    rows: np.ndarray | None = None,
) -> list[dict[str, np.ndarray]]:
    """The validation set: n_tokens // seq_len windows spaced evenly over the validation split.

    Which windows depends on seq_len and n_tokens only, never on batch_size. Each batch holds
    "tokens" int32 [batch_size, seq_len + 1] and "weights" float32 [batch_size, seq_len], one a
    target; rows that only fill up the last batch have weight 0. Without n_tokens: all windows.
    With `rows`, only those rows of every batch are read and given, in that order.

    Raises:
      UserError: a split shorter than one window, or n_tokens less than one window or more than
        there is.
    """
    _check_sizes(seq_len=seq_len, batch_size=batch_size)
    available = _n_windows(corpus.validation, seq_len)
    if available < 1:
        raise UserError(
            f"the validation split holds {len(corpus.validation)} tokens, and one window of "
            f"seq_len {seq_len} needs {seq_len + 1}: give more data, or a smaller seq_len"
        )
    n = available if n_tokens is None else n_tokens // seq_len
    if not 1 <= n <= available:
        raise UserError(
            f"validation on {n_tokens} tokens was asked, but with seq_len {seq_len} the split "
            f"allows from {seq_len} to {available * seq_len}: choose a number in that range"
        )
    # The middle of each of n equal stretches.
    chosen = (2 * np.arange(n) + 1) * available // (2 * n)
    rows = np.arange(batch_size) if rows is None else rows
    batches = []
    for first in range(0, n, batch_size):
        real = first + rows < n
        tokens = np.full((len(rows), seq_len + 1), corpus.separator, np.int32)
        tokens[real] = _windows(corpus.validation, chosen[first + rows[real]], seq_len)
        weights = np.zeros((len(rows), seq_len), np.float32)
        weights[real] = 1
        batches.append({"tokens": tokens, "weights": weights})
    return batches


def epochs(corpus: Corpus, tokens: int) -> float:
    """How many times training on `tokens` tokens would read the train split."""
    return tokens / len(corpus.train)


def _n_windows(tokens: np.ndarray, seq_len: int) -> int:
    return (len(tokens) - 1) // seq_len


def _windows(tokens: np.ndarray, numbers: np.ndarray, seq_len: int) -> np.ndarray:
    """int32 [len(numbers), seq_len + 1]."""
    return tokens[numbers[:, None] * seq_len + np.arange(seq_len + 1)].astype(np.int32)


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise UserError(f"{name} is {size}, but must be at least 1")
