"""dynamics.parquet: what goes on inside a model while it trains, looked at now and then.

A look is a program of its own, forward and backward over one window, the middle of the validation
split: training ends in the same bits with it or without. analysis/dynamics.py reads the file, which
has one row a number:

    step       optimizer steps done
    metric     output_rms, input_rms   of what a sublayer puts out, and reads before its norm
               max_read                the largest norm of what it reads, over tokens
               grad_norm               of the gradient by its parameters, of the mean loss
               update_ratio            norm of the step's update over norm of the weights before it
               alpha                   weight of a source in a read, mean over tokens
               alpha_entropy           nats, mean over tokens, of the weights in shares
               embedding_weight        alpha of source 0
               query_norm              of the parameters of a read's query
               composite_gain          from before the sublayer to the end, of mixing alone
               stream_similarity       cosine of two streams before it, mean over pairs and tokens
    site       attention, mlp, read (the last, no sublayer's) or block (of layers, at its first
               sublayer: eight blocks, or each layer where there are fewer)
    sublayer   0 .. n_sublayers - 1; n_sublayers is the last read
    source     of alpha: its number, the embedding's is 0; -1 elsewhere
    value      fp32
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from models import ModelConfig, measures
from models.residuals import find
from models.sharding import mesh_axes
from scaling.cells import Cell
from scaling.data import Corpus, validation_batches
from scaling.files import write_bytes
from scaling.step import Program

SCHEMA = pa.schema(
    {
        "step": pa.int32(),
        "metric": pa.string(),
        "site": pa.string(),
        "sublayer": pa.int16(),
        "source": pa.int16(),
        "value": pa.float32(),
    }
)
LOOKS = 20  # in a run, or somewhat more; fewer in short ones
ROWS_APART = 400  # training sequences between two looks, at least: a look takes the time of 3 or 4
BLOCKS = 8  # of layers


def interval(cell: Cell) -> int:
    """Steps between two looks, 0 where there are none."""
    if cell.train.dynamics_every is not None:
        return cell.train.dynamics_every
    return max(math.ceil(cell.steps / LOOKS), math.ceil(ROWS_APART / cell.train.batch_size))


class Probe:
    """The compiled look at one cell; on several hosts all take part."""

    def __init__(self, program: Program, corpus: Corpus):
        self._tokens = _windows(program, corpus)
        replicated = program.sharding.replicated
        look = jax.jit(partial(_look, program), out_shardings=replicated)
        params = program.state_shapes["params"]
        # On a CPU, where small models are and whose compiler is slow, it runs too rarely to be
        # worth its optimization.
        is_cpu = program.mesh.devices.flat[0].platform == "cpu"
        options = {"xla_backend_optimization_level": 0} if is_cpu else None
        lowered = look.lower(params, params["layers"], self._tokens)
        self._look = lowered.compile(compiler_options=options)
        where = program.shardings["params"]["layers"]
        self._copy = jax.jit(lambda layers: jax.tree.map(jnp.copy, layers), out_shardings=where)

    def copy(self, params: dict) -> dict:
        """The layers' parameters, to be kept while a step gives theirs away."""
        return self._copy(params["layers"])

    def __call__(self, params: dict, before: dict) -> dict[str, np.ndarray]:
        """What is found, by metric: a number each sublayer [S], or each read [S + 1].

        `alpha` has all sources of the first read, then all of the second, and so on.

        Args:
          params: now.
          before: the layers' before the last step.
        """
        return jax.device_get(self._look(params, before, self._tokens))


class Dynamics:
    """Looks at a cell when it is due, and keeps its dynamics.parquet.

    The file is written at checkpoints; a resumed run drops rows later than its checkpoint, and
    measures them again.
    """

    def __init__(
        self,
        cell: Cell,
        probe: Probe | None,
        path: Path | None,
        resumed_step: int,
        say: Callable[[str], None],
    ):
        """Without a probe nothing is done, and without a path nothing is written.

        What cannot be read or written is said with `say`: training does not depend on it.
        """
        self._cell, self._probe, self._path, self._say = cell, probe, path, say
        self._kept, self._is_written = [], True
        if probe and path and path.exists() and resumed_step:
            try:
                self._kept.append(_rows_until(path, resumed_step))
            except (OSError, ValueError) as error:  # of other columns, too
                first = str(error).partition("\n")[0]
                say(f"{cell.key}: {path} is damaged ({first}) and begins anew at {resumed_step}")

    def is_due(self, step: int) -> bool:
        """Whether to look after so many steps."""
        if self._probe is None:
            return False
        return step % interval(self._cell) == 0 or step == self._cell.steps

    def before(self, step: int, params: dict) -> dict | None:
        """What a look after this step needs from before it; None where it is not due."""
        return self._probe.copy(params) if self.is_due(step) else None

    def look(self, step: int, params: dict, before: dict | None = None) -> None:
        """Looks at the model after `step`; `before` is None where no step has been made."""
        found = self._probe(params, params["layers"] if before is None else before)
        if before is None:
            del found["update_ratio"]
        if self._path:
            self._kept.append(table(self._cell.model, step, found))
            self._is_written = False

    def write(self) -> None:
        """Makes the file hold all looks so far."""
        if not self._is_written:
            try:
                write_table(self._path, pa.concat_tables(self._kept))
                self._is_written = True
            except OSError as error:
                self._say(f"{self._cell.key}: {self._path} cannot be written: {error.strerror}")


def table(cfg: ModelConfig, step: int, found: dict[str, np.ndarray]) -> pa.Table:
    """The rows of one look, from what a `Probe` has found."""
    n = cfg.n_sublayers
    sources = find(cfg.residual.name).sources(cfg)
    of_reads = [(read, source) for read, each in enumerate(sources) for source in each]
    rows = []  # metric, site, sublayer, source, value
    for metric, values in found.items():
        if metric == "alpha":
            for (read, source), value in zip(of_reads, values, strict=True):
                rows.append((metric, site_of(read, n), read, source, value))
                if source == 0:
                    rows.append(("embedding_weight", site_of(read, n), read, -1, value))
        else:
            known = ((i, value) for i, value in enumerate(values) if not np.isnan(value))
            rows += [(metric, site_of(i, n), i, -1, value) for i, value in known]
    squares = np.square(found["grad_norm"], dtype=np.float64)
    for layers in np.array_split(np.arange(n // 2), min(BLOCKS, n // 2)):
        first, last = 2 * layers[0], 2 * layers[-1] + 1
        rows.append(("grad_norm", "block", first, -1, squares[first : last + 1].sum() ** 0.5))
    columns = [[step] * len(rows), *zip(*rows, strict=True)]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


def site_of(sublayer: int, n_sublayers: int) -> str:
    """What reads: "attention", "mlp", or "read" for the last one, which is no sublayer's."""
    return "read" if sublayer == n_sublayers else ("attention", "mlp")[sublayer % 2]


def write_table(path: Path, rows: pa.Table) -> None:
    """Writes a parquet file at once; see scaling.files."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    write_bytes(path, sink.getvalue().to_pybytes())


def _look(program: Program, params: dict, before: dict, tokens: jax.Array) -> dict[str, jax.Array]:
    grads, seen = program.observed_gradients(params, tokens, measures.of_sublayer)
    updates = jax.tree.map(jnp.subtract, params["layers"], before)
    found = {
        "grad_norm": measures.sublayer_norms(grads),
        "update_ratio": measures.sublayer_norms(updates) / measures.sublayer_norms(before),
    }
    by_metric = {name: [one[name] for one in seen if name in one] for name in seen[0]}
    if "mixing" in by_metric:
        found["composite_gain"] = measures.gains(by_metric.pop("mixing"))
    if "alpha" in by_metric:
        cfg = program.cell.model
        reads = zip(by_metric.pop("alpha"), find(cfg.residual.name).sources(cfg), strict=True)
        # A scan gives each read of a block as many weights as the one that has most.
        found["alpha"] = jnp.concatenate([alpha[: len(sources)] for alpha, sources in reads])
    return found | {name: jnp.stack(values) for name, values in by_metric.items()}


def _windows(program: Program, corpus: Corpus) -> jax.Array:
    """Tokens [n, T + 1]: the middle window of the validation split, n times.

    Once for each part that the mesh splits a batch into: what is measured does not depend on it.
    """
    n = math.prod(program.mesh.shape[axis] for axis in mesh_axes(program.by_row.spec[:1]))
    T = program.cell.data.seq_len
    (batch,) = validation_batches(corpus, seq_len=T, batch_size=1, n_tokens=T)
    tokens = np.repeat(batch["tokens"], n, axis=0)
    return jax.make_array_from_callback(tokens.shape, program.by_row, lambda i: tokens[i])


def _rows_until(path: Path, step: int) -> pa.Table:
    """The file's rows up to a step.

    Raises:
      OSError, ValueError: it is no such file.
    """
    return pq.read_table(path, partitioning=None).cast(SCHEMA).filter(pc.field("step") <= step)
