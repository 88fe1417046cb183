"""The commands fit, gap and plot, through typer, and the words they print."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from made_up_studies import study
from typer.testing import CliRunner

from analysis import Refusal, fit, fit_report, gap, load, multiplier, render
from scaling.commands import analyse, plot, report
from scaling.errors import UserError

THREE = {"prenorm": 1.0, "attnres_block": 1.2, "attnres_full": 1.3}


@pytest.fixture
def app():
    app = typer.Typer()
    for command in (analyse.fit, analyse.gap, plot.plot):
        app.command()(command)
    return app


@pytest.fixture
def invoke(app):
    def call(*args):
        result = CliRunner().invoke(app, [str(a) for a in args], catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout

    return call


@pytest.fixture
def run(tmp_path):
    noise = np.random.default_rng(0).normal(0, 0.001, (3, 5, 2))
    study(THREE, noise=noise, seeds=2).to_csv(tmp_path / "results.csv", index=False)
    return tmp_path


def test_table2_is_a_report_of_one_screen(invoke):
    out = invoke("fit", "attnres_table2")
    lines = out.splitlines()
    assert len(lines) <= 50 and max(map(len, lines)) <= 100
    assert "1.8863 [1.8762, 1.8964]" in out
    text = " ".join(out.split())
    assert "FLOP convention: 6nd + attention" in text
    assert "5 sizes, 1 seed a size, 20 runs" in text
    assert "prenorm needs 1.23x [1.18, 1.28] the compute" in text
    assert "1.22 1.21 1.21 1.22 1.31" in text  # four of five sizes
    assert "1.25x at 5.6 PFsd; rounding alone spans 1.20 to 1.31" in text
    assert "1.27x [1.18, 1.37]" in text and "less a size" in text  # what moves it
    assert "do not tell it from zero" in text and "Learning rates: how they" in text


def test_other_laws_are_shown_when_asked_for(invoke, run):
    out = invoke("fit", run, "--forms", "--at-loss", "1.8")
    assert "Laws and objectives" in out and "A C^-alpha, Huber" in out
    assert max(map(len, out.splitlines())) <= 100
    written = json.loads((run / "fits.json").read_text())
    assert len(written["forms"]) == 3 * 4
    assert written["multipliers"]["attnres_full"]["at_loss"] == pytest.approx(1.8)
    assert written["bootstrap"]["attnres_full"]["n_resamples"] == 10_000


def test_held_out_sizes_are_predicted(invoke, run):
    out = invoke("fit", run, "--holdout", "largest:1")
    assert "The largest sizes, predicted" in out and max(map(len, out.splitlines())) <= 100
    held = json.loads((run / "fits.json").read_text())["holdout"]
    assert len(held["predictions"]) == 3 and held["n_fitted"] == 4


@pytest.mark.parametrize("words", ["largest", "largest:0", "smallest:2", "largest:two"])
def test_a_holdout_that_is_none_is_named(invoke, words):
    with pytest.raises(UserError, match="must be largest:N"):
        invoke("fit", "attnres_table2", "--holdout", words)


def test_fit_writes_fits_next_to_the_results(invoke, run):
    out = invoke("fit", run, "--at", "2.5")
    assert "fits.json" in out
    written = json.loads((run / "fits.json").read_text())
    df = load(run)
    assert written["sha256"] == df.attrs["sha256"]
    assert written["schema_version"] == 3 and written["code_version"].startswith("0.")
    described = (Path(__file__).parents[2] / "docs" / "method.md").read_text(encoding="utf-8")
    assert all(f"`{key}`" in described for key in written)
    assert written["options"]["at"] == 2.5
    expected = multiplier(df, "attnres_full", at=2.5)
    assert written["multipliers"]["attnres_full"]["shared"]["low"] == expected.shared.low
    alpha = fit(df).laws["prenorm"].alpha.value
    assert written["fits"]["laws"]["prenorm"]["alpha"]["value"] == alpha
    assert [p.name for p in run.iterdir() if p.suffix == ".part"] == []


def test_json_is_what_is_written(invoke, run):
    printed = invoke("fit", run, "--json")
    assert json.loads(printed) == json.loads((run / "fits.json").read_text())
    assert (
        json.loads(invoke("gap", run, "--json"))["gap"]["pooled"]["low"]
        == gap(load(run)).pooled.low
    )


def test_fit_reports_the_others_when_one_variant_cannot_be_compared(invoke, tmp_path):
    df = study(THREE)
    df.loc[df["variant"] == "attnres_full", "size"] = "other" + df["size"]
    df.to_csv(tmp_path / "x.csv", index=False)
    out = " ".join(invoke("fit", tmp_path / "x.csv").split())
    assert "attnres_block is better" in out
    assert "attnres_full: no multiplier (too-few-sizes)" in out
    assert not (tmp_path / "fits.json").exists()


def test_fit_without_a_baseline_says_how_to_name_one(invoke, tmp_path):
    study({"a": 1.0, "b": 1.2}).to_csv(tmp_path / "x.csv")
    assert "--baseline" in invoke("fit", tmp_path / "x.csv")
    assert "b is better: a needs" in invoke("fit", tmp_path / "x.csv", "--baseline", "a")


def test_gap_prints_the_verdict(invoke):
    out = " ".join(invoke("gap", "attnres_table2").split())
    assert "not separated at this budget: gap 0.0052 nats [-0.0001, 0.0105]" in out
    assert "keeps 81% [66, 100] of attnres_full's gain" in out


def test_a_bracket_in_a_name_is_no_interval(capsys):
    wide = dict.fromkeys((f"c{i}" for i in range(5)), "a wide cell")  # so that it is stacked
    rows = [{"variant": "a [1, 2]", "size": "S [x, y]"} | wide | {"m": "1.24x [1.19, 1.29]"}]
    report.print_rows("t", rows)
    lines = capsys.readouterr().out.splitlines()
    assert "a [1, 2]" in lines[2] and "S [x, y]" in lines[2] and lines[2].endswith("1.24x")
    assert lines[3].split() == ["[1.19,", "1.29]"]
    report.print_rows("t", [{"variant": "a", "m": "1.24x [1.19, 1.29]"}])
    assert "1.24x [1.19, 1.29]" in capsys.readouterr().out  # on one line where it fits


def test_plot_writes_and_prints_paths(invoke, run, tmp_path):
    paths = invoke("plot", run).split()
    assert str(run / "plots" / "loss_vs_compute.svg") in paths
    out = tmp_path / "elsewhere"
    assert json.loads(invoke("plot", "attnres_table2", "--out", out, "--json"))["written"]
    stems = {path.stem for path in out.iterdir()}
    assert stems >= {"loss_vs_compute", "gap_by_size", "multipliers_by_size"}


def test_refusals_pass_through(app):
    result = CliRunner().invoke(app, ["fit", "nowhere.csv"])
    assert isinstance(result.exception, Refusal)
    assert result.exception.code == "no-such-file"


def has_interval_or_none(sentence: str) -> bool:
    """Every multiplier or nat value is followed by its interval."""
    return all(
        re.match(r"\s*\[", sentence[m.end() :]) for m in re.finditer(r"\d(x| nats)", sentence)
    )


@pytest.mark.parametrize(
    ("m", "noise", "words"),
    [
        (1.3, 0.0005, "x is better: prenorm needs"),
        (0.7, 0.0005, "x is worse: prenorm needs"),
        (1.05, 0.01, "not separated at this budget: "),
    ],
)
def test_verdicts_never_give_a_bare_number(m, noise, words):
    e = noise * np.random.default_rng(6).normal(size=(2, 5, 1))
    verdict = fit_report.multiplier_verdict(multiplier(study({"prenorm": 1, "x": m}, noise=e), "x"))
    assert words in verdict
    assert has_interval_or_none(verdict)
    assert re.search(r"\dx \[", verdict)


def test_verdict_names_differing_exponents():
    df = study({"prenorm": 1, "x": 1.2}, alphas={"x": 0.08})
    verdict = fit_report.multiplier_verdict(multiplier(df, "x"))
    assert "exponents differ" in verdict and has_interval_or_none(verdict)


def test_intervals_are_never_printed_empty():
    assert render.number(multiplier(study({"prenorm": 1, "x": 1.2}), "x").shared) == (
        "1.200000 [1.200000, 1.200000]"
    )
    noise = 1e-5 * np.random.default_rng(0).normal(size=(2, 5, 1))
    low, high = re.findall(
        r"[\d.]+",
        render.number(multiplier(study({"prenorm": 1, "x": 1.2}, noise=noise), "x").shared),
    )[1:]
    assert low != high


def test_analysis_imports_neither_jax_nor_the_trainer_nor_matplotlib():
    code = (
        "import sys, analysis; analysis.fit(analysis.load('attnres_table2')); "
        "bad = {'jax', 'scaling', 'models', 'kernels', 'matplotlib', 'scipy.stats'}; "
        "print(sorted(bad & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
