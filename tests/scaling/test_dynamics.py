"""dynamics.parquet: right numbers, at the right steps, once; and training that does not notice."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.dynamics import DYNAMICS
from models import ModelConfig, ResidualSpec
from models.residuals import BUILT_IN, find
from models.taps import Tapped
from scaling import dynamics
from scaling.contract.checks import moved
from scaling.contract.toy import QUICK
from scaling.data import prepare
from scaling.dynamics import Dynamics, Probe, interval
from scaling.ledger import Ledger
from scaling.run import CellFailedError, run_cell
from scaling.step import Program


@pytest.fixture
def corpus(make_cell):
    spec = make_cell().data
    return prepare(spec.source, spec.tokenizer)


def rows(ledger, cell) -> pd.DataFrame:
    return pq.read_table(ledger.directory(cell) / "dynamics.parquet").to_pandas()


class Killed(BaseException):
    """Stands for a SIGKILL inside one process: nothing that catches Exception sees it."""


def test_training_is_the_same_to_the_bit_looked_at_or_not(make_cell, corpus, tmp_path):
    results = []
    for every in (0, 7):
        cell = make_cell("attnres_block", dynamics_every=every)
        ledger = Ledger(tmp_path / str(every))
        run_cell(cell, ledger, corpus)
        record = ledger.summary(cell)[0]
        results.append([record[key] for key in ("digest", "weights_sha256", "val_loss")])
        metrics = (ledger.directory(cell) / "metrics.jsonl").read_text().splitlines()
        lines = [json.loads(line) for line in metrics]
        results[-1].append([{k: v for k, v in line.items() if k != "seconds"} for line in lines])
        assert (ledger.directory(cell) / "dynamics.parquet").exists() == (every > 0)
    assert results[0] == results[1]
    found = rows(ledger, cell)
    assert found.step.unique().tolist() == [0, 7, 14, 20] and np.isfinite(found.value).all()
    assert found.metric.nunique() == 9
    assert set(found[found.metric == "update_ratio"].step) == {7, 14, 20}  # 0 has no update
    keys = ["step", "metric", "site", "sublayer", "source"]
    assert not found.duplicated(keys).any()


def test_interrupted_anywhere_the_rows_are_the_same(make_cell, corpus, tmp_path, monkeypatch):
    cell = make_cell(dynamics_every=3)
    whole, parts = Ledger(tmp_path / "whole"), Ledger(tmp_path / "parts")
    run_cell(cell, whole, corpus)
    for stop in (4, 5, 14):
        with monkeypatch.context() as patch:

            def report(event, stop=stop, patch=patch):
                if event["step"] == stop:
                    if stop == 14:  # a kill leaves no time to write at the end
                        patch.setattr(dynamics, "write_table", lambda *_: None)
                    raise Killed

            with pytest.raises(Killed):
                run_cell(cell, parts, corpus, report)
        assert rows(parts, cell).step.max() == {4: 3, 5: 3, 14: 9}[stop]
        if stop == 4:  # what a kill may leave of the file, were it not written at once
            path = parts.directory(cell) / "dynamics.parquet"
            path.write_bytes(path.read_bytes()[:100])
    run_cell(cell, parts, corpus)
    pd.testing.assert_frame_equal(rows(parts, cell), rows(whole, cell))
    assert rows(whole, cell).step.unique().tolist() == [0, 3, 6, 9, 12, 15, 18, 20]


def test_a_cell_that_fails_keeps_what_was_seen(make_cell, corpus, tmp_path, not_finite_at):
    not_finite_at(9)
    cell, ledger = make_cell(dynamics_every=3), Ledger(tmp_path)
    with pytest.raises(CellFailedError, match="non-finite at step 9"):
        run_cell(cell, ledger, corpus)
    assert rows(ledger, cell).step.unique().tolist() == [0, 3, 6]


def test_a_write_that_breaks_off_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "dynamics.parquet"
    dynamics.write_table(path, dynamics.SCHEMA.empty_table())
    before = path.read_bytes()

    def torn(file):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", torn)
    with pytest.raises(OSError, match="no space"):
        dynamics.write_table(path, dynamics.SCHEMA.empty_table())
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


@pytest.fixture
def probed(make_cell, corpus):
    """(program, probe, parameters before a step, and after it), of moved parameters."""
    cell = make_cell("attnres_full").model_copy(update={"steps": 5})
    program = Program(cell)
    params = program.init()["params"]
    params["residual"] = moved(params["residual"])
    rng = np.random.default_rng(0)
    after = jax.tree.map(lambda p: p + np.float32(0.01) * rng.normal(size=p.shape), params)
    after = jax.tree.map(lambda p: jnp.asarray(p, jnp.float32), after)
    return program, Probe(program, corpus), params, after


def test_numbers_are_those_of_the_definitions(probed):
    program, probe, params, after = probed
    cfg = program.cell.model
    found = dynamics.table(cfg, 5, probe(after, probe.copy(params))).to_pandas()
    values = found.set_index(["metric", "site", "sublayer", "source"]).value

    tokens = np.asarray(probe._tokens)

    def plainly(params):
        """The gradient of the loss, and what sublayers read and put out."""
        model, seen = program.model(params), []
        model.layers = Tapped(model.layers, lambda x, y: (seen.append((x, y)), y)[1])
        model.hidden(tokens[:, :-1])
        loss = lambda p: program.nll_sum(p, {"tokens": tokens})[0] / (tokens.size - 1)  # noqa: E731
        return jax.grad(loss)(params), seen

    grads, seen = jax.jit(plainly, compiler_options=QUICK)(after)

    def norm(tree, layer, parts) -> float:
        """Of the parameters of one layer whose paths begin so, in float64."""
        leaves = jax.tree_util.tree_leaves_with_path(tree["layers"])
        rows = [np.float64(leaf[layer]) for path, leaf in leaves if path[0].key in parts]
        assert rows
        return float(np.sqrt(sum((row**2).sum() for row in rows)))

    updates = jax.tree.map(lambda a, b: np.float64(a) - np.float64(b), after, params)
    for layer in range(2):
        squares = 0.0
        for kind, site in (("attn", "attention"), ("mlp", "mlp")):
            sublayer, parts = 2 * layer + (kind == "mlp"), (kind, f"{kind}_norm")
            expected = norm(grads, layer, parts)
            squares += expected**2
            at = site, sublayer, -1
            np.testing.assert_allclose(values["grad_norm", *at], expected, rtol=1e-4)
            ratio = norm(updates, layer, parts) / norm(params, layer, parts)
            np.testing.assert_allclose(values["update_ratio", *at], ratio, rtol=1e-4)
        block = values["grad_norm", "block", 2 * layer, -1]
        np.testing.assert_allclose(block, squares**0.5, rtol=1e-4)

    for sublayer, (x, y) in enumerate(seen):
        at = ("attention", "mlp")[sublayer % 2], sublayer, -1
        for metric, array in (("input_rms", x), ("output_rms", y)):
            rms = np.sqrt(np.mean(np.float64(array) ** 2))
            np.testing.assert_allclose(values[metric, *at], rms, rtol=1e-4)

    alpha = found[found.metric == "alpha"]
    assert alpha.groupby("sublayer").size().tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(alpha.groupby("sublayer").value.sum(), 1, rtol=1e-5)
    assert alpha[alpha.sublayer == 4].site.unique().tolist() == ["read"]
    first = alpha[alpha.source == 0].value.to_numpy()
    np.testing.assert_array_equal(found[found.metric == "embedding_weight"].value, first)
    assert (found[found.metric != "alpha"].source == -1).all()


def test_the_window_is_the_middle_of_the_validation_split(probed, corpus):
    program, probe, _, _ = probed
    T, tokens = program.cell.data.seq_len, np.asarray(probe._tokens)
    first = (len(corpus.validation) - 1) // T // 2 * T
    np.testing.assert_array_equal(tokens, [corpus.validation[first : first + T + 1]])


def test_prenorm_has_no_weights_over_depth(make_cell, corpus, tmp_path):
    cell, ledger = make_cell(dynamics_every=20), Ledger(tmp_path)
    run_cell(cell, ledger, corpus)
    expected = {"output_rms", "input_rms", "max_read", "grad_norm", "update_ratio"}
    assert set(rows(ledger, cell).metric) == expected


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_variant_is_looked_at(make_cell, name):
    """On shapes alone: nothing is compiled."""
    cell = make_cell()
    residual = ResidualSpec(name=name, options=next(iter(find(name).examples.values())))
    fields = cell.model.model_dump() | {"residual": residual, "d_model": 16, "n_heads": 2}
    cfg = ModelConfig(**fields | {"head_dim": 8, "n_kv_heads": 2})
    program = Program(cell.model_copy(update={"model": cfg}))
    params = program.state_shapes["params"]
    tokens = jax.ShapeDtypeStruct((1, 33), np.int32)
    look = lambda params, tokens: dynamics._look(program, params, params["layers"], tokens)  # noqa: E731
    shapes = jax.eval_shape(look, params, tokens)
    found = dynamics.table(cfg, 1, {k: np.ones(s.shape) for k, s in shapes.items()}).to_pandas()
    has_weights = find(name).family == "attention over depth"
    assert ("alpha" in set(found.metric)) == has_weights
    assert ("composite_gain" in set(found.metric)) == (name in ("hc", "mhc", "mhc_lite", "ihc"))
    for metric, per in found[found.site != "block"].groupby("metric"):
        if metric != "alpha":
            reads = metric in ("input_rms", "max_read", "alpha_entropy", "query_norm",
                               "embedding_weight")  # fmt: skip
            assert per.sublayer.tolist() == list(range(4 + reads)), metric


def test_what_is_written_is_what_analysis_reads():
    """Each has the schema, since training does without pandas, and analysis without JAX."""
    assert dynamics.SCHEMA.equals(pa.schema(DYNAMICS))


def test_how_often(make_cell):
    cell = make_cell(dynamics_every=None)  # batches of four
    of = lambda steps: interval(cell.model_copy(update={"steps": steps}))  # noqa: E731
    assert (of(20), of(2000), of(10_001)) == (100, 100, 501)
    assert interval(make_cell(dynamics_every=3)) == 3
    assert cell.digest == make_cell(dynamics_every=17).digest
    off = Dynamics(make_cell(dynamics_every=0), None, None, 0, print)
    assert not off.is_due(0) and off.before(20, {}) is None


def test_training_goes_on_where_dynamics_cannot_be_read_or_written(make_cell, corpus, tmp_path):
    cell, ledger, notes = make_cell(dynamics_every=4), Ledger(tmp_path), []

    def stop(event):
        if event["step"] == 12:
            raise Killed

    with pytest.raises(Killed):
        run_cell(cell, ledger, corpus, stop)
    path = ledger.directory(cell) / "dynamics.parquet"
    path.write_text("garbage")
    run_cell(cell, ledger, corpus, say=notes.append)
    assert rows(ledger, cell).step.unique().tolist() == [12, 16, 20]
    assert len(notes) == 1 and "dynamics.parquet is damaged" in notes[0]
    assert "begins anew at 10" in notes[0]

    pq.write_table(pa.table({"a": [1]}), path)
    Dynamics(cell, object(), path, 4, notes.append)
    assert "dynamics.parquet is damaged" in notes.pop()

    again = Ledger(tmp_path / "again")
    (again.directory(cell) / "dynamics.parquet").mkdir(parents=True)
    run_cell(cell, again, corpus, say=notes.append)
    assert again.summary(cell)[0]["weights_sha256"] == ledger.summary(cell)[0]["weights_sha256"]
    assert "cannot be written: Is a directory" in notes[-1]
