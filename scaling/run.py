"""Runs one cell from wherever it stands to its summary."""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import jax
import numpy as np

from scaling import checkpoint
from scaling.cells import Cell
from scaling.data import Corpus, train_batches, validation_batches
from scaling.device import peak_flops
from scaling.files import write_json
from scaling.flops import PFLOPS_DAY, count_params, train_flops
from scaling.ledger import Ledger
from scaling.metrics import Metrics
from scaling.optimizer import schedule
from scaling.step import Program
from scaling.version import code_version

Report = Callable[[dict], None]


class CellFailedError(Exception):
    """The cell cannot go on; the message is the reason, in a few words."""


def run_cell(
    cell: Cell, ledger: Ledger, corpus: Corpus, report: Report = lambda event: None
) -> None:
    """Trains a cell, resuming from its last checkpoint, validates it and writes its summary.

    The result is a function of the cell and the data alone: interrupted anywhere and run again on
    the same kind of machine, it ends in the same bits.

    Args:
      cell: what to train.
      ledger: where; the caller holds the cell's lock.
      corpus: the prepared data of `cell.data`.
      report: called after every step with {"step", "loss", "seconds"}, seconds spent training.

    Raises:
      CellFailedError: a loss, gradient or update was not finite, or the data are not those of the
        checkpoint.
    """
    directory = ledger.directory(cell)
    (directory / "failed.json").unlink(missing_ok=True)
    write_json(directory / "config.json", cell.model_dump(mode="json"))
    validation = validation_batches(
        corpus,
        seq_len=cell.data.seq_len,
        batch_size=cell.train.batch_size,
        n_tokens=cell.data.validation_tokens,
    )
    program = Program(cell)
    clock = Clock()
    with clock.measure("compile"):
        state = program.init()
        first = program.put({"tokens": _tokens_like(cell)})
        train_step = program.compile_train(state, first)
    restored = checkpoint.restore(directory / "checkpoints", state)
    if restored is not None:
        _, state, extra = restored
        if extra["data_fingerprint"] != corpus.fingerprint:
            raise CellFailedError(
                f"its checkpoint was trained on data {extra['data_fingerprint']}, "
                f"but the data are now {corpus.fingerprint}"
            )
        for activity, seconds in extra["seconds"].items():
            clock.seconds[activity] += seconds
    state = _train(cell, directory, corpus, program, train_step, state, clock, report)
    with clock.measure("compile"):
        eval_step = program.compile_eval(state["params"], program.put(validation[0]))
    with clock.measure("validate"):
        losses = _validate(program, eval_step, state["params"], validation)
    ledger.write_summary(cell, _summary(cell, corpus, clock, state["params"], validation, losses))


class Clock:
    """Seconds spent, by activity."""

    def __init__(self):
        self.seconds = {"train": 0.0, "compile": 0.0, "validate": 0.0, "save": 0.0}

    @contextlib.contextmanager
    def measure(self, activity: str) -> Iterator[None]:
        """Adds the time spent inside to an activity."""
        start = time.perf_counter()
        yield
        self.seconds[activity] += time.perf_counter() - start


def _train(cell, directory, corpus, program, train_step, state, clock, report) -> dict:
    """The loop: dispatch a step, then look at the metrics of the one before."""
    start, every = int(state["step"]), cell.train.checkpoint_every
    rates = np.asarray(schedule(cell.train, cell.steps)(np.arange(cell.steps)))
    batches = train_batches(
        corpus,
        seq_len=cell.data.seq_len,
        batch_size=cell.train.batch_size,
        seed=cell.seed,
        start_step=start,
    )
    metrics = Metrics(directory / "metrics.jsonl", start, cell.train.log_every)
    pending = None

    def drain() -> None:
        """Waits for the step dispatched last; nothing is saved before its numbers were seen."""
        if pending is None:
            return
        step, values = pending
        if not values["finite"]:
            raise CellFailedError(f"non-finite at step {step}")
        if metrics.add(step, float(values["loss"])) or step % every == 0 or step == cell.steps:
            metrics.write(
                step,
                tokens=step * cell.tokens_per_step,
                learning_rate=float(rates[step - 1]),
                grad_norm=float(values["grad_norm"]),
                seconds=clock.seconds["train"],
            )
        report({"step": step, "loss": float(values["loss"]), "seconds": clock.seconds["train"]})

    try:
        for step in range(start + 1, cell.steps + 1):
            with clock.measure("train"):
                state, values = train_step(state, program.put(next(batches)))
                drain()
            pending = step, values
            if step % every == 0 or step == cell.steps:
                with clock.measure("train"):
                    drain()
                pending = None
                with clock.measure("save"):
                    extra = {"data_fingerprint": corpus.fingerprint, "seconds": clock.seconds}
                    checkpoint.save(directory / "checkpoints", step, state, extra)
    finally:
        metrics.close()
    return state


def _validate(program, eval_step, params, batches) -> dict:
    """Mean loss over all validation tokens, and its standard error over windows."""
    totals, counts = [], []
    for batch in batches:
        total, count = eval_step(params, program.put(batch))
        totals.append(np.asarray(total, np.float64))
        counts.append(np.asarray(count, np.float64))
    total, count = np.concatenate(totals), np.concatenate(counts)
    total, count = total[count > 0], count[count > 0]
    if not np.isfinite(total).all():
        raise CellFailedError("non-finite validation loss")
    means = total / count
    sem = float(means.std(ddof=1) / len(means) ** 0.5) if len(means) > 1 else None
    return {"val_loss": float(total.sum() / count.sum()), "val_loss_sem": sem, "nats": total.sum()}


def _summary(
    cell: Cell, corpus: Corpus, clock: Clock, params: dict, validation: list[dict], losses: dict
) -> dict:
    """What results.csv is made of."""
    n_params, n_non_embedding = count_params(cell.model)
    seconds, device = clock.seconds, jax.local_devices()[0]
    peak = peak_flops()
    per_second = train_flops(cell.model, cell.tokens, "with_head") / seconds["train"]
    targets = np.concatenate([batch["tokens"][:, 1:][batch["weights"] > 0] for batch in validation])
    return {
        "n_params": n_params,
        "n_params_non_embedding": n_non_embedding,
        "tokens": cell.tokens,
        "steps": cell.steps,
        "train_flops": cell.train_flops,
        "flops_convention": "train_flops",
        "pflops_days": cell.train_flops / PFLOPS_DAY,
        "val_loss": losses["val_loss"],
        "val_loss_sem": losses["val_loss_sem"],
        "bits_per_byte": float(losses["nats"] / np.log(2) / corpus.n_bytes(targets)),
        "train_seconds": seconds["train"],
        "compile_seconds": seconds["compile"],
        "tokens_per_second": cell.tokens / seconds["train"],
        "mfu": per_second / peak if peak else None,
        "data_fingerprint": corpus.fingerprint,
        "code_version": code_version(),
        "jax_version": jax.__version__,
        "device_kind": device.device_kind,
        "n_devices": jax.local_device_count(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "weights_sha256": _digest(params),
    }


def _digest(params: dict) -> str:
    """sha256 of all weights, in the order of their paths."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        digest.update(jax.tree_util.keystr(path).encode())
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


def _tokens_like(cell: Cell) -> np.ndarray:
    return np.zeros((cell.train.batch_size, cell.data.seq_len + 1), np.int32)
