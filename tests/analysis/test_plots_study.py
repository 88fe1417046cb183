"""All figures of a run directory, and the command that draws them."""

import json
import shutil

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import typer
from matplotlib.figure import Figure
from plot_flaws import flaws
from plot_worlds import plot_world
from test_plots_sweeps import mixing
from typer.testing import CliRunner

from analysis import Refusal, load
from analysis.plots import COLUMN, save_all, study
from scaling.commands.plot import plot

VARIANTS = {
    "prenorm": {},
    "attnres_block": {"m": 1.2, "kind": "block"},
    "attnres_full": {"m": 1.3, "kind": "full"},
}
DRAWN = {
    "loss_vs_compute", "multipliers_by_size", "multiplier_curves", "gap_by_size",
    "cost_by_variant", "loss_curves", "loss_by_step", "input_by_depth", "output_by_depth",
    "gradient_by_depth", "alpha_heatmaps",
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return plot_world(tmp_path_factory.mktemp("made"), VARIANTS, sizes=3, seeds=1, n_lines=40)


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "run")


@pytest.fixture
def unsaved(monkeypatch):
    """Figures are kept instead of written, which takes most of the time."""
    kept = {}

    def keep(figure, directory, name, pdf):
        kept[name] = figure
        return [directory / name]

    monkeypatch.setattr(study, "save", keep)
    return kept


@pytest.fixture
def invoke():
    app = typer.Typer()
    app.command()(plot)
    return lambda *args: CliRunner().invoke(app, [str(a) for a in args])


def test_everything_that_a_study_supports_is_written(run, tmp_path):
    written, skipped = save_all(load(run), tmp_path / "p", run=run)
    assert {p.stem for p in written} == DRAWN and len(written) == 2 * len(DRAWN)
    assert all(path.stat().st_size > 1000 for path in written)
    assert set(skipped) == {"block_sweep", "isoflop_profiles", "learning_rate_sweep", "mixing"}
    assert "scaling mixing-matrix" in skipped["mixing"]
    assert all(reason.endswith(".") or "computes it" in reason for reason in skipped.values())
    assert plt.get_fignums() == []  # no global state


def test_a_study_of_one_variant_and_one_size(tmp_path, unsaved):
    run = plot_world(tmp_path, {"prenorm": {}}, sizes=1, seeds=1, n_lines=20)
    _, skipped = save_all(load(run), tmp_path, run=run)
    assert set(unsaved) == {
        "loss_vs_compute", "loss_curves", "loss_by_step", "input_by_depth", "output_by_depth",
        "gradient_by_depth",
    }  # fmt: skip
    assert {name: flaws(figure) for name, figure in unsaved.items() if flaws(figure)} == {}
    assert "nothing to compare" in skipped["cost_by_variant"]
    assert "no run attends over depth" in skipped["alpha_heatmaps"]


def test_a_table_alone(unsaved, tmp_path):
    _, skipped = save_all(load("attnres_table2"), tmp_path)
    assert set(unsaved) == {
        "loss_vs_compute", "multipliers_by_size", "multiplier_curves", "gap_by_size"
    }  # fmt: skip
    assert "tokens_per_second" in skipped["cost_by_variant"]


def test_missing_dynamics_and_damaged_files_are_said(run, unsaved, tmp_path):
    for path in run.glob("*/ablation.parquet"):
        path.unlink()
    (run / "d16-c0-s0" / "metrics.jsonl").write_bytes(b'{"step": 1\n{}\n')
    torn = run / "d48-c1-s0" / "dynamics.parquet"
    torn.write_bytes(torn.read_bytes()[:100])
    _, skipped = save_all(load(run), tmp_path, run=run)
    assert set(unsaved) >= DRAWN
    reasons = " ".join(skipped.values())
    assert "Line 1 of" in reasons and "d48-c1-s0/dynamics.parquet' cannot be read" in reasons
    assert "scaling ablate-sources" in skipped["map of importance"]
    for path in run.glob("*/dynamics.parquet"):
        path.unlink()
    unsaved.clear()
    _, skipped = save_all(load(run), tmp_path, run=run)
    assert "No run in" in skipped["alpha_heatmaps"] and "output_by_depth" in skipped
    assert "loss_curves" in unsaved


def test_mixing_matrices_that_were_computed_are_drawn(run, unsaved, tmp_path):
    (run / "plots").mkdir()
    mixing(["d16/prenorm/s0"]).to_csv(run / "plots" / "mixing.csv", index=False)
    save_all(load(run), tmp_path, run=run)
    assert isinstance(unsaved["mixing"], Figure)
    (run / "plots" / "mixing.csv").write_text("")
    _, skipped = save_all(load(run), tmp_path, run=run)
    assert "cannot be read as CSV" in skipped["mixing"]


def test_sweeps_are_found_in_the_table(run, unsaved, tmp_path):
    df = load(run)
    rates = [0.005, 0.01, 0.02]
    swept = pd.concat(
        df.assign(variant=df["variant"] + f"-lr{rate:g}", learning_rate=rate, loss=df["loss"] + d)
        for rate, d in zip(rates, (0.1, 0.01, 0.1), strict=True)
    )
    save_all(load(swept), tmp_path)
    panels = [a for a in unsaved["learning_rate_sweep"].axes if a.get_visible()]
    titles = [axis.get_title().split("\n")[0] for axis in panels]
    assert titles == list(VARIANTS)


def test_a_size_and_a_baseline_that_are_not_there(run, tmp_path):
    for wrong, code in (({"size": "d17"}, "missing-size"), ({"baseline": "x"}, "missing-variant")):
        with pytest.raises(Refusal) as e:
            save_all(load(run), tmp_path, run=run, **wrong)
        assert e.value.code == code


def test_colours_are_the_same_in_all_figures(run, unsaved, tmp_path):
    save_all(load(run), tmp_path, run=run, page=COLUMN)
    points = (x for x in unsaved["gap_by_size"].axes[0].lines if x.get_marker() == "o")
    alone = next(points).get_color()
    lines = unsaved["loss_vs_compute"].axes[0].lines
    of_block = [line for line in lines if line.get_color() == alone]
    assert of_block and unsaved["loss_curves"].get_figwidth() == COLUMN.width


def test_the_command_writes_paths_and_reasons(run, tmp_path, invoke, unsaved):
    out = tmp_path / "out"
    done = invoke("--size", "d32", "--width", "column", "--out", out, "--json", run)
    assert done.exit_code == 0
    said = json.loads(done.stdout)
    assert str(out / "loss_by_step") in said["written"] and "mixing" in said["skipped"]
    figure = unsaved["loss_by_step"]
    assert figure.legends[0].get_title().get_text().startswith("size d32;")
    assert figure.get_figwidth() == COLUMN.width


def test_the_command_on_a_study_without_a_finished_run(tmp_path, invoke, unsaved):
    run = plot_world(tmp_path / "run", VARIANTS, sizes=2, seeds=1, n_lines=20, unfinished=True)
    done = invoke(run)
    assert done.exit_code == 0 and "loss_curves" in done.stdout
    assert set(unsaved) == DRAWN - {
        "loss_vs_compute", "multipliers_by_size", "multiplier_curves", "gap_by_size",
        "cost_by_variant",
    }  # fmt: skip
    assert "No plots of results: No run has status 'done' (6 running)" in done.stderr
    for name in ("metrics.jsonl", "dynamics.parquet"):
        for path in run.glob(f"*/{name}"):
            path.unlink()
    refused = invoke(run)
    assert refused.exception.code == "no-finished-runs"


def test_the_command_knows_what_the_study_calls_full_and_block(run, invoke, unsaved):
    grid = json.loads((run / "grid.json").read_text())
    for cell in grid["cells"]:
        if cell["variant"] == "attnres_full":
            cell["model"]["residual"]["name"] = "attnres_full"
            cell["variant"] = "mine"
    (run / "grid.json").write_text(json.dumps(grid))
    results = (run / "results.csv").read_text().replace("attnres_full", "mine")
    (run / "results.csv").write_text(results)
    assert invoke(run).exit_code == 0
    assert "attnres_block - mine" in unsaved["gap_by_size"].axes[0].get_title()


def test_the_command_writes_pdf_when_asked_for(tmp_path, invoke):
    table = tmp_path / "x.csv"
    table.write_text("variant,size,seed,loss,pflops_days\nprenorm,S,0,2.0,1.0\n")
    done = invoke(table, "--pdf", "--out", tmp_path)
    assert [p.rpartition(".")[2] for p in done.stdout.split()] == ["png", "svg", "pdf"]
    assert (tmp_path / "loss_vs_compute.pdf").read_bytes()[:5] == b"%PDF-"
    assert done.stderr.startswith("No multipliers_by_size, multiplier_curves")


def test_flaws_are_seen():
    """The measure itself: a title across a label, a label beyond the page, axes without units."""
    figure = COLUMN.figure(1)
    axis = figure.subplots()
    axis.set(title="a title", xlabel="no unit", xticks=[0.1, 0.2], xticklabels=["wide " * 9] * 2)
    figure.text(0.5, 0.5, "not an axes text")
    axis.text(3, 0, "beyond")
    found = flaws(figure)
    assert any("overlap: 'wide" in f for f in found) and "cut off: 'beyond'" in found
    assert "no unit: 'no unit'" in found and "no name on any y axis" in found
