"""Runs one cell from wherever it stands to its summary."""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import jax
import numpy as np
from jax.experimental import multihost_utils

from scaling import checkpoint, multihost
from scaling.cells import Cell
from scaling.data import Corpus, train_batches, validation_batches
from scaling.device import peak_flops, program_memory
from scaling.dynamics import Dynamics, Probe, interval
from scaling.flops import PFLOPS_DAY, count_params, train_flops
from scaling.ledger import Ledger
from scaling.metrics import Metrics
from scaling.optimizer import schedule
from scaling.step import Program
from scaling.version import code_version

Report = Callable[[dict], None]
Say = Callable[[str], None]


class CellFailedError(Exception):
    """The cell cannot go on; the message is the reason, in a few words."""


def run_cell(
    cell: Cell,
    ledger: Ledger,
    corpus: Corpus,
    report: Report = lambda event: None,
    say: Say = lambda note: None,
) -> None:
    """Trains a cell, resuming from its last checkpoint, validates it and writes its summary.

    The result is a function of the cell and the data alone: interrupted anywhere and run again on
    the same kind of machine, it ends in the same bits. On other devices, or another number of
    hosts, the batches are the same and sums may round differently. On several hosts all call this
    with the same cell.

    Args:
      cell: what to train.
      ledger: where; the caller holds the cell's lock.
      corpus: the prepared data of `cell.data`.
      report: called after every step with {"step", "loss", "seconds"}, seconds spent training.
      say: called with what a person should know.

    Raises:
      CellFailedError: a loss, gradient or update was not finite, or the data or the model are not
        those of the checkpoint.
      HostError: another host is late or gone.
    """
    directory = ledger.directory(cell)
    ledger.write_config(cell)
    program = Program(cell)
    validation = validation_batches(corpus, **_validation_shape(cell), rows=program.rows)
    clock = Clock()
    with clock.measure("compile"):
        state = program.init()
        first = program.put({"tokens": _tokens_like(cell, program.rows)})
        train_step = program.compile_train(state, first)
        peak_bytes = program_memory(train_step)["peak"]
    with clock.measure("dynamics"):
        probe = Probe(program, corpus) if interval(cell) else None
    state = _resume(directory, corpus, program, state, clock, say)
    path = directory / "dynamics.parquet" if multihost.is_lead() else None
    dynamics = Dynamics(cell, probe, path, int(state["step"]), say)
    state = _train(cell, directory, corpus, program, train_step, state, clock, report, dynamics)
    with clock.measure("compile"):
        eval_step = program.compile_eval(state["params"], program.put(validation[0]))
    with clock.measure("validate"):
        losses = _validate(program, eval_step, state["params"], validation)
        digest = _digest(state["params"])
    if multihost.is_lead():
        if len(program.rows) < cell.train.batch_size:  # the other hosts' rows too
            validation = validation_batches(corpus, **_validation_shape(cell))
        summary = _summary(cell, corpus, program, clock, peak_bytes, validation, losses)
        ledger.write_summary(cell, {**summary, "weights_sha256": digest})


def _resume(directory, corpus, program, state, clock, say) -> dict:
    """The state of the last checkpoint, or the one given where there is none."""
    multihost.note("restore")
    try:
        restored = checkpoint.restore(directory / "checkpoints", state)
    except checkpoint.MismatchError as error:
        raise CellFailedError(str(error)) from error
    if restored is None:
        return state
    step, state, extra = restored
    if extra["data_fingerprint"] != corpus.fingerprint:
        raise CellFailedError(
            f"its checkpoint was trained on data {extra['data_fingerprint']}, "
            f"but the data are now {corpus.fingerprint}"
        )
    for activity, seconds in extra["seconds"].items():
        clock.seconds[activity] += seconds
    now, before = _layout(program), extra.get("layout")
    clock.mixed = extra.get("mixed", False)
    if before is not None and before != now:
        clock.mixed = True
        say(
            f"{program.cell.key}: was trained to step {step} on {_in_words(before)}, goes on on "
            f"{_in_words(now)}: same data order; sums may round differently"
        )
    return state


def _layout(program: Program) -> dict:
    """What the order of sums depends on."""
    return {
        "processes": len(multihost.process_names()),
        "devices": program.mesh.size,
        "mesh": {axis: n for axis, n in program.mesh.shape.items() if n > 1},
    }


def _in_words(layout: dict) -> str:
    n, mesh = layout["processes"], layout["mesh"]
    split = ", ".join(f"{axis}={size}" for axis, size in mesh.items())
    each = layout["devices"] // n
    words = f"{n} process{'es' * (n > 1)} x {each} device{'s' * (each > 1)}"
    return f"{words} ({split})" if split else words


class Clock:
    """Seconds spent, by activity."""

    def __init__(self):
        self.mixed = False  # whether other devices, of another speed, did a part of it
        activities = ("train", "compile", "validate", "save", "dynamics")
        self.seconds = dict.fromkeys(activities, 0.0)

    @contextlib.contextmanager
    def measure(self, activity: str, step: int | None = None) -> Iterator[None]:
        """Adds the time spent inside to an activity, and tells the other hosts what it is."""
        multihost.note(activity, step)
        start = time.perf_counter()
        yield
        self.seconds[activity] += time.perf_counter() - start


def _train(cell, directory, corpus, program, train_step, state, clock, report, dynamics) -> dict:
    """The loop: dispatch a step, then look at the metrics of the one before."""
    start, every = int(state["step"]), cell.train.checkpoint_every
    rates = np.asarray(schedule(cell.train, cell.steps)(np.arange(cell.steps)))
    batches = train_batches(
        corpus,
        seq_len=cell.data.seq_len,
        batch_size=cell.train.batch_size,
        seed=cell.seed,
        start_step=start,
        rows=program.rows,
    )
    path = directory / "metrics.jsonl" if multihost.is_lead() else None
    metrics = Metrics(path, start, cell.train.log_every)
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

    with contextlib.ExitStack() as at_the_end:
        at_the_end.callback(dynamics.write)
        at_the_end.callback(metrics.close)
        if start == 0 and dynamics.is_due(0):
            with clock.measure("dynamics"):
                dynamics.look(0, state["params"])
        for step in range(start + 1, cell.steps + 1):
            before = dynamics.before(step, state["params"])
            with clock.measure("train", step):
                state, values = train_step(state, program.put(next(batches)))
                drain()
            pending = step, values
            is_saved = step % every == 0 or step == cell.steps
            if is_saved or before is not None:
                with clock.measure("train"):
                    drain()
                pending = None
            if before is not None:
                with clock.measure("dynamics", step):
                    dynamics.look(step, state["params"], before)
            if is_saved:
                with clock.measure("save"):
                    dynamics.write()  # first: what a kill leaves after the checkpoint is dropped
                    extra = {
                        "data_fingerprint": corpus.fingerprint,
                        "seconds": clock.seconds,
                        "mixed": clock.mixed,
                        "layout": _layout(program),
                    }
                    checkpoint.save(directory / "checkpoints", step, state, extra)
    return state


def _validate(program, eval_step, params, batches) -> dict:
    """Mean loss over all validation tokens, and its standard error over windows."""
    totals, counts = [], []
    for batch in batches:
        multihost.note("validate")
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
    cell: Cell,
    corpus: Corpus,
    program: Program,
    clock: Clock,
    peak_bytes: int | None,
    validation: list[dict],
    losses: dict,
) -> dict:
    """What results.csv is made of."""
    n_params, n_non_embedding = count_params(cell.model)
    seconds, device = clock.seconds, jax.local_devices()[0]
    peak = None if clock.mixed else peak_flops()
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
        "dynamics_seconds": seconds["dynamics"],
        "tokens_per_second": None if clock.mixed else cell.tokens / seconds["train"],
        "mfu": per_second / peak if peak else None,
        "peak_memory_bytes": peak_bytes,
        "data_fingerprint": corpus.fingerprint,
        "code_version": code_version(),
        "jax_version": jax.__version__,
        "device_kind": device.device_kind,
        "n_devices": program.mesh.size,
        "n_processes": len(multihost.process_names()),
        "mesh": " ".join(f"{axis}={n}" for axis, n in _layout(program)["mesh"].items()),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _digest(params: dict) -> str:
    """sha256 of all weights, in the order of their paths; every host has to take part."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        digest.update(jax.tree_util.keystr(path).encode())
        if not (leaf.is_fully_addressable or leaf.is_fully_replicated):
            leaf = multihost_utils.process_allgather(leaf, tiled=True)
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


def _validation_shape(cell: Cell) -> dict:
    return {
        "seq_len": cell.data.seq_len,
        "batch_size": cell.train.batch_size,
        "n_tokens": cell.data.validation_tokens,
    }


def _tokens_like(cell: Cell, rows: np.ndarray) -> np.ndarray:
    return np.zeros((len(rows), cell.data.seq_len + 1), np.int32)
