"""Depth-mixing matrices of the cells of a study or of its runs; see models.mixing."""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
from flax import nnx

from models import ModelConfig, Transformer
from models.mixing import mixing_matrix
from scaling.cells import Cell
from scaling.data import prepare, validation_batches
from scaling.step import Program, init_params
from scaling.trained import trained_params


def trained_matrix(cell: Cell, run: Path, n_sequences: int) -> np.ndarray:
    """M of a finished cell, on validation tokens.

    Raises:
      UserError: as `trained_params`.
    """
    corpus = prepare(cell.data.source, cell.data.tokenizer)
    params = trained_params(Program(cell, jax.devices()[:1]), run, corpus)
    batches = validation_batches(
        corpus,
        seq_len=cell.data.seq_len,
        batch_size=n_sequences,
        n_tokens=n_sequences * cell.data.seq_len,
    )
    return matrix(cell.model, params, batches[0]["tokens"][:, :-1])


def initial_matrix(cell: Cell, _: Path, n_sequences: int) -> np.ndarray:
    """M of a cell before its first step, on random tokens."""
    shape = (n_sequences, cell.model.seq_len)
    tokens = np.random.default_rng(0).integers(0, cell.model.vocab_size, shape, dtype=np.int32)
    return matrix(cell.model, init_params(cell.model, cell.seed), tokens)


def matrix(cfg: ModelConfig, params: dict, tokens_BT: np.ndarray) -> np.ndarray:
    """M [n_sublayers + 1, n_sublayers + 1] of a model with these parameters."""
    cfg = cfg.model_copy(update={"scan": False, "remat": "none", "implementation": "xla"})
    abstract = jax.eval_shape(lambda key: Transformer(cfg, key), jax.random.key(0))
    graphdef, _ = nnx.split(abstract)
    run = jax.jit(
        lambda params, tokens: mixing_matrix(nnx.merge(graphdef, params), tokens),
        # It runs once; compiling is most of its time.
        compiler_options={"xla_backend_optimization_level": 0},
    )
    return np.asarray(run(params, tokens_BT), np.float64)


def table(matrices: dict[str, np.ndarray]) -> pd.DataFrame:
    """Rows of cell, sublayer (n_sublayers is the readout), source (0 is the embedding), weight."""
    rows = [
        (cell, sublayer, source, weight)
        for cell, m in matrices.items()
        for (sublayer, source), weight in np.ndenumerate(m)
        if source <= sublayer
    ]
    return pd.DataFrame(rows, columns=["cell", "sublayer", "source", "weight"])
