"""ablation.parquet: what the loss of a trained model becomes without a source of its reads.

Weights over depth are not importance: a source of little weight may hold what no other does.

    mode       remove: the source's weight goes to the read's other sources, in proportion (sigmoids
               keep theirs); average: its value is the mean over the tokens of a batch, its weight
               as it was
    site       attention, mlp or read (the last, no sublayer's)
    sublayer   whose read alone goes without; -1: those of all sublayers of the site together, and
               of all reads where the site is ""
    source     its number, the embedding's is 0
    delta      change of the loss on the same validation tokens, in nats; more is worse
    tokens     how many of them
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.dynamics import ABLATION, read_file
from analysis.errors import Refusal
from models import ModelConfig
from models.residuals import find
from models.residuals.reading import Reading
from models.taps import TappedReads
from scaling.cells import Cell
from scaling.data import Corpus, prepare, validation_batches
from scaling.dynamics import site_of, write_table
from scaling.errors import UserError
from scaling.ledger import Ledger
from scaling.step import Batch, Program
from scaling.trained import trained_cells, trained_params

Mode = Literal["remove", "average"]
TOLERANCE = 1e-3  # of the loss, for readings in bfloat16

SCHEMA = pa.schema(ABLATION)


class Cut(NamedTuple):
    """One source, taken from some reads."""

    site: str
    sublayer: int
    source: int
    reads: tuple[int, ...]


def ablated_cells(run: Path, sizes=None, variants=None, seeds=None) -> list[Cell]:
    """The finished cells of a run directory that attend over depth.

    Raises:
      UserError: as `trained_cells`, or none of them attends over depth.
    """
    cells = trained_cells(run, sizes, variants, seeds)
    found = [cell for cell in cells if sources_of(cell.model)]
    if not found:
        names = sorted({cell.variant for cell in cells})
        raise UserError(
            f"none of the finished cells asked for in {run} attends over depth (variants: "
            f"{', '.join(names)}); sources are those of attnres_full and its relatives."
        )
    return found


def sources_of(cfg: ModelConfig) -> list[tuple[int, ...]]:
    """The numbers of the sources of each read, the readout's last; empty without such reads."""
    return find(cfg.residual.name).sources(cfg)


def ablate(
    cell: Cell,
    run: Path,
    modes: tuple[Mode, ...],
    n_tokens: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> pa.Table:
    """Measures all cuts of a finished cell and writes its ablation.parquet.

    Args:
      cell: one of `ablated_cells`.
      run: its run directory.
      modes: of taking a source away.
      n_tokens: validation tokens to measure on, rounded to whole batches of the cell's.
      progress: called with how many measurements are done, and of how many.

    Returns:
      The rows measured; those of other modes that the file has stay in it.

    Raises:
      UserError: as `trained_params`; or the variant's `reading` is not what it reads.
    """
    corpus = prepare(cell.data.source, cell.data.tokenizer)
    program = Program(cell.model_copy(update={"mesh": "auto"}))
    batches = _batches(cell, corpus, n_tokens)
    losses = Losses(program, trained_params(program, run, corpus), batches)
    whole, trained, rows = losses(), losses.trained(), []
    if not math.isclose(whole, trained, rel_tol=TOLERANCE):
        raise UserError(
            f"{cell.key}: what `reading` of {cell.model.residual.name!r} takes apart does not mix "
            f"to what `read` reads: the loss is {whole:.6f} with the one and {trained:.6f} with "
            "the other. `scaling check-variant` names the deviation."
        )
    every = [(mode, cut) for mode in modes for cut in cuts(sources_of(cell.model))]
    for done, (mode, cut) in enumerate(every):
        progress(done, len(every))
        delta = losses(mode, cut) - whole
        rows.append((mode, cut.site, cut.sublayer, cut.source, delta, losses.n_tokens))
    progress(len(every), len(every))
    columns = zip(SCHEMA.names, zip(*rows, strict=True), strict=True)
    table = pa.table({name: list(column) for name, column in columns}, schema=SCHEMA)
    path = Ledger(run).directory(cell) / "ablation.parquet"
    kept = _rows_but(path, modes)
    write_table(path, pa.concat_tables([kept, table]))
    return table


def _rows_but(path: Path, modes: tuple[Mode, ...]) -> pa.Table:
    """What the file holds of other modes."""
    try:
        rows = read_file(path, "ablation")
    except Refusal:  # there is none, or it is damaged
        return SCHEMA.empty_table()
    return rows.filter(~pc.is_in(pc.field("mode"), pa.array(modes)))


def cuts(sources: list[tuple[int, ...]]) -> Iterator[Cut]:
    """Each source from each read, then from all reads of a site, then from all.

    A read of one source is left alone: nothing would be left of it.
    """
    last = len(sources) - 1
    reads = [read for read, each in enumerate(sources) if len(each) > 1]
    for read in reads:
        for source in sources[read]:
            yield Cut(site_of(read, last), read, source, (read,))
    for site in ("attention", "mlp", ""):
        of_site = [read for read in reads if site in ("", site_of(read, last))]
        for source in sorted({source for read in of_site for source in sources[read]}):
            with_it = tuple(read for read in of_site if source in sources[read])
            yield Cut(site, -1, source, with_it)


class Losses:
    """The loss of a trained model on validation tokens, whole or with a cut."""

    def __init__(self, program: Program, params: dict, batches: list[dict]):
        self._params, self._sources = params, sources_of(program.cell.model)
        self._batches = [program.put(batch) for batch in batches]
        self.n_tokens = int(sum(batch["weights"].sum() for batch in batches))
        self._program, none = program, self._mask(None)
        loss = jax.jit(partial(_loss, program), out_shardings=program.sharding.replicated)
        self._loss = loss.lower(params, self._batches[0], none, none).compile()

    def trained(self) -> float:
        """Nats a token of the model as it was trained, its reads not taken apart."""
        step = self._program.compile_eval(self._params, self._batches[0])
        rows = (step(self._params, batch)[0] for batch in self._batches)
        return float(sum(np.sum(np.asarray(x), dtype=np.float64) for x in rows)) / self.n_tokens

    def __call__(self, mode: Mode = "remove", cut: Cut | None = None) -> float:
        """Nats a token, in float64 over batches."""
        taken, none = self._mask(cut), self._mask(None)
        masks = (taken, none) if mode == "remove" else (none, taken)
        sums = [self._loss(self._params, batch, *masks) for batch in self._batches]
        return float(sum(np.asarray(x, np.float64) for x in sums)) / self.n_tokens

    def _mask(self, cut: Cut | None) -> np.ndarray:
        """Bool [reads, most sources of a read], by a source's place in the read."""
        mask = np.zeros((len(self._sources), max(map(len, self._sources))), bool)
        for read in cut.reads if cut else ():
            mask[read, self._sources[read].index(cut.source)] = True
        return mask


def _loss(program: Program, params: dict, batch: Batch, removed_Rn, averaged_Rn) -> jax.Array:
    """Sum of weighted losses in nats, where reads go without sources."""
    weights_BT = batch["weights"]

    def mix(reading: Reading, read):
        n = len(reading.values)
        return without(reading, removed_Rn[read, :n], averaged_Rn[read, :n], weights_BT).mixed()

    with program.resolved():
        model = program.model(params)
        model.residual = TappedReads(model.residual, mix)
        return jnp.sum(model.nll(batch["tokens"]) * weights_BT)


def without(reading: Reading, removed_n, averaged_n, weights_BT) -> Reading:
    """A read in which sources are not there, or are their mean over tokens."""
    share_BT1 = (weights_BT / jnp.sum(weights_BT))[..., None]

    def value(v_BTD, is_averaged):
        mean_11D = jnp.sum(share_BT1 * v_BTD.astype(jnp.float32), axis=(0, 1), keepdims=True)
        return jnp.where(is_averaged, mean_11D.astype(v_BTD.dtype), v_BTD)

    logits = jnp.where(removed_n[:, None, None, None], -jnp.inf, reading.logits_nBTC)
    values = [value(v, averaged_n[i]) for i, v in enumerate(reading.values)]
    return reading._replace(values=values, logits_nBTC=logits)


def _batches(cell: Cell, corpus: Corpus, n_tokens: int) -> list[dict]:
    """Whole batches where there are enough tokens, one with rows of weight 0 otherwise."""
    B, T = cell.train.batch_size, cell.data.seq_len
    n_batches = min(round(n_tokens / (B * T)) or 1, cell.data.validation_tokens // (B * T))
    n_tokens = n_batches * B * T or cell.data.validation_tokens
    return validation_batches(corpus, seq_len=T, batch_size=B, n_tokens=n_tokens)
