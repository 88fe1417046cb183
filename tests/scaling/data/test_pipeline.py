"""Order, coverage and resumption of batches; the train tokens are 0, 1, 2, ... so windows show."""

import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from scaling.data import Corpus, epochs, train_batches, validation_batches
from scaling.errors import UserError


def counting_corpus(n_train=1001, n_validation=1001, longest=500):
    return Corpus(
        train=np.arange(n_train, dtype=np.uint32),
        validation=np.arange(n_validation, dtype=np.uint32),
        vocab_size=2000,
        separator=1999,
        token_bytes=np.ones(2000, np.uint32),
        fingerprint="0" * 16,
        stats={"train": {"longest_document": longest}},
        source="files:none",
        tokenizer="bytes",
        directory=Path(),
    )


def windows(n_batches, *, seed=0, seq_len=10, batch_size=20, **kwargs):
    """Numbers of the windows read, [n_batches * batch_size]."""
    corpus = counting_corpus()
    batches = train_batches(corpus, seq_len=seq_len, batch_size=batch_size, seed=seed, **kwargs)
    tokens = np.concatenate([b["tokens"] for b in islice(batches, n_batches)])
    assert np.array_equal(tokens, tokens[:, :1] + np.arange(seq_len + 1))
    return tokens[:, 0] // seq_len


def test_shape_and_type():
    batch = next(train_batches(counting_corpus(), seq_len=10, batch_size=3, seed=0))
    assert batch.keys() == {"tokens"}
    assert batch["tokens"].shape == (3, 11) and batch["tokens"].dtype == np.int32


@pytest.mark.parametrize("batch_size", [20, 30, 100, 1])
def test_each_epoch_covers_every_target_once(batch_size):
    read = windows(-(-300 // batch_size), batch_size=batch_size)[:300].reshape(3, 100)
    assert (np.sort(read) == np.arange(100)).all()
    targets = np.sort((read[0][:, None] * 10 + np.arange(1, 11)).ravel())
    assert np.array_equal(targets, np.arange(1, 1001))


def test_every_epoch_has_its_own_order():
    first, second, third = windows(15).reshape(3, 100)
    assert not np.array_equal(first, np.arange(100))
    for a, b in ((first, second), (second, third), (first, third)):
        assert (a == b).mean() < 0.2


def test_order_follows_from_the_seed():
    assert np.array_equal(windows(10, seed=7), windows(10, seed=7))
    orders = [windows(10, seed=seed).reshape(2, 100) for seed in (0, 1, 2)]
    assert (orders[0][0] == orders[1][0]).mean() < 0.2
    # Seeds must not be each other's epochs, or "three seeds" would share their orders.
    for low, high in ((0, 1), (1, 2)):
        assert (orders[low][1] == orders[high][0]).mean() < 0.2


def test_order_is_the_same_in_every_version():
    # Should a new Grain change this, old runs could not be resumed nor repeated: say so in the
    # change log and raise the floor of the dependency.
    assert windows(1, batch_size=8).tolist() == [96, 77, 31, 79, 9, 70, 28, 83]


@pytest.mark.parametrize("read_threads", [0, 2, 4])
def test_order_does_not_depend_on_threads(read_threads):
    assert np.array_equal(windows(12), windows(12, read_threads=read_threads))


@pytest.mark.parametrize("n_hosts", [1, 2, 4, 20])
def test_order_does_not_depend_on_who_reads_which_rows(n_hosts):
    whole = windows(7, start_step=3).reshape(7, 20)
    shares = np.random.default_rng(0).permutation(20).reshape(n_hosts, -1)
    for rows in shares:
        rows = np.sort(rows)
        mine = windows(7, start_step=3, rows=rows).reshape(7, -1)
        assert np.array_equal(mine, whole[:, rows])


def test_start_step_and_state():
    whole = windows(12, batch_size=30).reshape(12, 30)
    for start in (0, 1, 5, 11):
        rest = windows(12 - start, batch_size=30, start_step=start)
        assert np.array_equal(rest, whole[start:].ravel())
    batches = train_batches(counting_corpus(), seq_len=10, batch_size=30, seed=0, start_step=4)
    next(batches)
    state = batches.get_state()
    after = [next(batches)["tokens"] for _ in range(3)]
    assert np.array_equal(after[0][:, 0] // 10, whole[5])
    batches.set_state(state)
    assert np.array_equal([next(batches)["tokens"] for _ in range(3)], after)


FRESH = """
import sys
sys.path.insert(0, sys.argv[1])
from test_pipeline import windows
print(windows(5, seed=3, start_step=7).tolist())
"""


def test_resuming_in_a_fresh_process():
    command = [sys.executable, "-c", FRESH, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(windows(12, seed=3)[7 * 20 :].tolist())


@pytest.mark.parametrize(
    ("corpus", "sizes", "says"),
    [
        ({"n_train": 100}, {"batch_size": 16}, "100 tokens.*16 windows of 10 needs 161"),
        ({}, {"seq_len": 501}, r"seq_len 501 is longer than the longest document \(500 tokens\)"),
        ({}, {"seq_len": 0}, "seq_len is 0"),
        ({}, {"batch_size": -1}, "batch_size is -1"),
        ({}, {"seed": -1}, "seed -1"),
        ({}, {"start_step": -2}, "start_step -2"),
    ],
)
def test_refusals(corpus, sizes, says):
    with pytest.raises(UserError, match=says):
        train_batches(
            counting_corpus(**corpus), **{"seq_len": 10, "batch_size": 2, "seed": 0, **sizes}
        )


def test_smallest_corpus_that_is_enough():
    corpus = counting_corpus(n_train=161)
    batches = train_batches(corpus, seq_len=10, batch_size=16, seed=0)
    assert sorted(next(batches)["tokens"][:, 0]) == list(range(0, 160, 10))


def validation_windows(batch_size, n_tokens):
    batches = validation_batches(
        counting_corpus(), seq_len=10, batch_size=batch_size, n_tokens=n_tokens
    )
    for batch in batches:
        assert batch["tokens"].shape == (batch_size, 11) and batch["tokens"].dtype == np.int32
        assert batch["weights"].shape == (batch_size, 10) and batch["weights"].dtype == np.float32
    tokens = np.concatenate([b["tokens"] for b in batches])
    weights = np.concatenate([b["weights"] for b in batches])
    real = weights[:, 0] == 1
    assert (weights == real[:, None]).all() and (tokens[~real] == 1999).all()
    assert len(batches) == -(-real.sum() // batch_size)
    return tokens[real, 0] // 10


@pytest.mark.parametrize(("n_tokens", "n"), [(10, 1), (77, 7), (500, 50), (1000, 100), (None, 100)])
def test_validation_is_fixed_and_evenly_spaced(n_tokens, n):
    chosen = validation_windows(16, n_tokens)
    assert len(chosen) == n
    assert np.array_equal(chosen, validation_windows(7, n_tokens))
    gaps = np.diff(np.concatenate([[-1], chosen, [100]]))
    assert np.ptp(gaps[1:-1]) <= 1 if n > 1 else True
    # As much of the split lies before the first window as after the last one.
    assert abs(int(gaps[0]) - int(gaps[-1])) <= 1


@pytest.mark.parametrize("rows", [[0, 1, 2], [3, 7], [0, 2, 4, 6]])
def test_a_host_reads_its_own_rows_of_the_validation_set(rows):
    rows, shape = np.array(rows), {"seq_len": 10, "batch_size": 8, "n_tokens": 210}
    whole = validation_batches(counting_corpus(), **shape)
    mine = validation_batches(counting_corpus(), **shape, rows=rows)
    assert len(mine) == len(whole) == 3  # the last has 5 windows
    for part, batch in zip(mine, whole, strict=True):
        assert part.keys() == batch.keys()
        assert all(np.array_equal(part[name], batch[name][rows]) for name in batch)


@pytest.mark.parametrize(
    ("n_validation", "n_tokens", "says"),
    [
        (10, None, "10 tokens, and one window of seq_len 10 needs 11"),
        (1001, 9, "from 10 to 1000"),
        (1001, 1010, "from 10 to 1000"),
    ],
)
def test_validation_refusals(n_validation, n_tokens, says):
    corpus = counting_corpus(n_validation=n_validation)
    with pytest.raises(UserError, match=says):
        validation_batches(corpus, seq_len=10, batch_size=2, n_tokens=n_tokens)


def test_epochs():
    assert epochs(counting_corpus(n_train=1000), 2500) == 2.5
