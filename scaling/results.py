"""results.csv: one row a cell, stable columns, losses unrounded."""

import csv
import io
from pathlib import Path

from scaling.files import write_text
from scaling.ledger import Ledger

COLUMNS = {
    "study": "name of the study",
    "cell": "folder of the run",
    "size": "rung of the ladder",
    "variant": "label of the residual connection",
    "seed": "of weights and data order",
    "status": "done, failed, running or pending; only done rows have results",
    "n_params": "all parameters",
    "n_params_non_embedding": "without the embedding and the head",
    "tokens": "trained on",
    "steps": "optimizer steps",
    "learning_rate": "its peak",
    "rate_swept_for": "variant whose sweep chose learning_rate; empty where none did",
    "train_flops": "FLOPs of training, in flops_convention",
    "flops_convention": "see scaling/flops.py",
    "pflops_days": "train_flops / 8.64e19",
    "val_loss": "nats per token on the fixed validation tokens",
    "val_loss_sem": "standard error of val_loss over validation windows",
    "bits_per_byte": "validation loss in bits per byte of text",
    "train_seconds": "in training steps: no compiling, looking inside, saving or validating",
    "compile_seconds": "spent compiling",
    "dynamics_seconds": "spent looking inside, the compiling of it included",
    "tokens_per_second": "tokens / train_seconds; empty where other devices did a part",
    "mfu": "model FLOPs a second, head included, over the devices' peak; of a CPU, a timed one",
    "peak_memory_bytes": "of a training step on one device, by the compiler's account",
    "data_fingerprint": "hash of the tokenized data and the tokenizer",
    "code_version": "of this package",
    "jax_version": "of jax",
    "device_kind": "as jax names it",
    "n_devices": "used, of all hosts",
    "n_processes": "hosts, or processes on them",
    "mesh": "how the devices were split, as axis=size",
}


def write_results(ledger: Ledger) -> Path:
    """Writes results.csv for every cell of the grid and returns its path.

    Raises:
      UserError: the directory holds no study.
    """
    rows = []
    for cell in ledger.cells():
        record, _ = ledger.summary(cell)
        known = {
            "study": cell.study,
            "cell": cell.id,
            "size": cell.size,
            "variant": cell.variant,
            "seed": cell.seed,
            "learning_rate": cell.train.learning_rate,
            "status": ledger.status(cell).kind,
        }
        swept = {"rate_swept_for": cell.rate_swept_for}  # a finished run keeps what it was
        rows.append({**swept, **(record or {}), **known})
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)  # csv writes floats with repr: every digit
    path = ledger.root / "results.csv"
    write_text(path, text.getvalue())
    return path
