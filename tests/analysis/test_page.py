"""The page's data and its HTML: equal to fits.json, whole whatever is missing, and inert."""

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from made_up_runs import dynamics, finish, made_up_run
from made_up_studies import study as made_up_table
from pages import data_of, table
from typer.testing import CliRunner

from analysis import Refusal, fit, load
from analysis.fit_report import law_rows, multiplier_rows, robustness_rows
from analysis.page import Study, html, page_data
from analysis.page.dynamics import read_cell
from analysis.page.logs import read_log
from analysis.render import number
from analysis.report import report
from analysis.stats import Estimate, mean_interval
from analysis.style import BLACK, COLOURS
from scaling.cli import app
from scaling.ledger import Ledger
from scaling.page import Pages
from scaling.results import write_results

EVIL = "<img src=x onerror=alert(1)>"
EVILS = [EVIL, "</script><script>alert(1)</script>", "<!--", "a & b", "\u202eabc", "x" * 300]


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory):
    """Thirty cells with everything; to be copied before it is changed."""
    return made_up_run(tmp_path_factory.mktemp("runs") / "made-up", seeds=2, inside=True).root


@pytest.fixture(scope="module")
def shown(shared_run) -> dict:
    """Its data."""
    return data_of(shared_run)


@pytest.fixture
def run(shared_run, tmp_path):
    return shutil.copytree(shared_run, tmp_path / "made-up")


def scaling(*words) -> str:
    result = CliRunner().invoke(app, [str(w) for w in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


class Tags(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_numbers_are_those_of_fits_json(run):
    scaling("fit", run, "--at", "1e-8")
    written = json.loads((run / "fits.json").read_text())
    data = data_of(run)
    assert data["downloads"]["fits.json"] == written  # its options too
    laws = table(data, "laws", "laws-table")
    for variant, law in written["fits"]["laws"].items():
        row = laws[variant + (" (baseline)" if variant == "prenorm" else "")]
        assert row["alpha"] == number(Estimate(**law["alpha"]), 4)
        assert row["A"] == number(Estimate(**law["A"]), 4)
    shown = table(data, "multipliers", "multipliers-table")
    assert set(shown) == set(written["multipliers"]) == {"attnres_block", "attnres_full"}
    for variant, m in written["multipliers"].items():
        assert shown[variant]["one exponent"] == number(Estimate(**m["shared"]), unit="x")
        assert shown[variant]["own exponents"] == number(Estimate(**m["separate"]), unit="x")
        _, joint = number(Estimate(**written["together"][variant]), unit="x").split(" ", 1)
        told = f"{number(Estimate(**m['shared']), unit='x')}, jointly {joint}"
        assert f"{variant} ({told})" in data["verdict"][0]
        (curve,) = [
            c
            for c in data["compute"]["multipliers"]["train_flops"]
            if c["variant"] == data["variants"].index(variant)
        ]
        assert [s["y"] for s in curve["by_size"]] == pytest.approx(
            [s["value"] for s in m["by_size"]], rel=1e-4
        )


def test_tables_are_those_of_the_commands(shared_run, shown):
    found = report(load(shared_run), "prenorm")
    data = shown
    for section, name, rows in (
        ("laws", "laws-table", law_rows(found.fits)),
        ("multipliers", "multipliers-table", multiplier_rows(found)),
        ("multipliers", "robustness-table", robustness_rows(found.robustness)),
    ):
        assert list(table(data, section, name).values()) == rows
    out = " ".join(scaling("gap", shared_run).split())
    (gap,) = data["tables"]["gap"]
    assert all(claim in out for claim in gap["claims"])
    (sizes,) = data["tables"]["sizes"]
    assert len(sizes["rows"]) == 15


def test_the_verdict_is_three_sentences_that_never_give_a_bare_number(shown):
    verdict = shown["verdict"]
    assert len(verdict) == 3
    for sentence in verdict:
        assert sentence.endswith(".") and sentence[0].isupper()
        values = re.finditer(r"\d\.\d+x|exponent for all variants, [\d.]+", sentence)
        assert all(sentence[m.end() :].startswith(" [") for m in values)
    assert verdict[0].startswith("For the same loss prenorm needs more compute than attnres_")
    assert "30 runs at 5 sizes" in verdict[2] and "2 seeds each" in verdict[2]


def test_the_page_is_one_file_that_asks_for_nothing(run):
    scaling("report", run)
    page = (run / "report.html").read_text(encoding="utf-8")
    tags = Tags(page).found
    for tag, attrs in tags:
        for name in ("src", "href", "action", "data", "srcset"):
            assert attrs.get(name, "#").startswith(("#", "data:,")), (tag, attrs)
    assert not re.search(r"url\((?!#|\$)|@import", page.split("<style>")[1].split("</style>")[0])
    outside = set(re.findall(r"https?://[\w./]+", page))
    assert outside <= {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert page.count("<script") == 2


def test_only_the_pages_own_blocks_may_act(shown):
    page = html(shown)
    (policy,) = [a["content"] for tag, a in Tags(page).found if a.get("http-equiv")]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (block,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"


@pytest.mark.parametrize("evil", EVILS)
def test_a_name_is_never_markup(evil):
    df = made_up_table({"prenorm": 1.0, evil: 1.2})
    df["size"] = df["size"] + evil
    data = page_data(load(df), Study(evil))
    plain = page_data(made_up_table({"prenorm": 1.0, "x": 1.2}), Study("x"))
    page = html(data)
    assert [tag for tag, _ in Tags(page).found] == [tag for tag, _ in Tags(html(plain)).found]
    text = page.split('id="data">')[1].split("</script>")[0]
    assert not set("<>&") & set(text) and text.isascii()
    assert evil in json.loads(text)["variants"] and json.loads(text)["title"] == evil


def test_no_asset_writes_markup():
    page = html(page_data(made_up_table({"prenorm": 1.0}), Study("x")))
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


def test_colours_are_those_of_the_figures():
    page = html(page_data(made_up_table({"prenorm": 1.0}), Study("x")))
    assert tuple(re.findall(r"--c\d: light-dark\((#\w+),", page)) == (BLACK, *COLOURS)


def test_laws_under_every_convention_are_fits_of_their_own(shared_run, shown):
    data, df = shown, load(shared_run)
    keys = [axis["key"] for axis in data["compute"]["axes"]]
    assert keys == ["train_flops", "with_head", "attention_full", "6nd", "seconds"]
    cells = {c.id: c for c in Ledger(shared_run).cells()}
    from scaling.flops import train_flops

    flops = [train_flops(cells[c].model, cells[c].tokens, "6nd") for c in df["cell"]]
    law = fit(df.assign(pflops_days=np.array(flops) / 8.64e19)).laws["attnres_full"]
    shown = {data["variants"][law["variant"]]: law for law in data["compute"]["laws"]["6nd"]}
    assert shown["attnres_full"]["alpha"] == pytest.approx(law.alpha.value, rel=1e-12)
    own = {data["variants"][law["variant"]]: law for law in data["compute"]["laws"]["train_flops"]}
    assert own["prenorm"]["alpha"] == fit(df).laws["prenorm"].alpha.value


def test_differences_are_paired_by_seed_and_have_an_interval(shared_run, shown):
    data = shown
    full = data["variants"].index("attnres_full")
    of = {}
    for cell in Ledger(shared_run).cells():
        if cell.size == "d32":
            of[cell.variant, cell.seed] = read_log(shared_run / cell.id / "metrics.jsonl")
    (mean,) = [m for m in data["training"]["means"] if m["variant"] == full and m["size"] == "d32"]
    differences = [of["attnres_full", s].loss - of["prenorm", s].loss for s in (0, 1)]
    width = -(-200 // 80)
    first = mean_interval(np.array([d[: width - 1].mean() for d in differences]), 0.95)
    assert mean["difference"]["m"][0] == pytest.approx(first.value, rel=1e-2)
    assert mean["difference"]["hi"][0] == pytest.approx(first.high, rel=1e-2)
    assert len(mean["difference"]["s"]) == 80


def test_alpha_and_its_ablation_are_those_of_the_files(shared_run, shown):
    ledger = Ledger(shared_run)
    cell = next(c for c in ledger.cells() if c.variant == "attnres_full")
    made = shown["dynamics"]["cells"][cell.id]
    raw = pd.read_parquet(ledger.directory(cell) / "dynamics.parquet")
    alpha = raw[(raw["metric"] == "alpha") & (raw["step"] == raw["step"].max())]
    rows = dict(zip(made["alpha"]["sublayers"], made["alpha"]["rows"], strict=True))
    assert [len(row) for row in rows.values()] == list(range(1, 10))
    for s, source, value in alpha[["sublayer", "source", "value"]].itertuples(index=False):
        assert rows[s][source] * made["alpha"]["unit"] == pytest.approx(value, abs=6e-4)
    ablated = pd.read_parquet(ledger.directory(cell) / "ablation.parquet")
    removed = ablated[ablated["mode"] == "remove"]
    found = made["ablation"]["remove"]
    reads = zip(found["sublayers"], found["sites"], strict=True)
    rows = dict(zip(reads, found["rows"], strict=True))
    columns = ["sublayer", "site", "source", "delta"]
    for s, site, source, value in removed[columns].itertuples(index=False):
        assert rows[s, site][source] * 1e-5 == pytest.approx(value, abs=6e-6)
    (rms,) = [r for r in made["depth"] if (r["metric"], r["site"]) == ("output_rms", "mlp")]
    assert rms["sublayers"] == [1, 3, 5, 7] and len(rms["steps"]) == 5
    assert rms["steps"][-1] == cell.steps


def test_dynamics_beyond_the_budget_are_named(run, monkeypatch):
    monkeypatch.setattr("analysis.page.dynamics.BUDGET", 20_000)
    data = data_of(run)
    seeds = {c["seed"] for c in data["grid"] if c["id"] in data["dynamics"]["cells"]}
    assert seeds == {"0"} and "left out to keep the page small" in data["dynamics"]["notes"][0]


def test_without_dynamics_the_folder_says_none(tmp_path):
    assert read_cell(tmp_path) is None


def test_settings_by_what_they_depend_on(shown):
    data = shown
    tables = {t["id"]: t for t in data["configuration"]}
    assert set(tables) == {"settings-all", "settings-size", "settings-variant"}
    assert ["data.seq_len", "128"] in tables["settings-all"]["rows"]
    assert tables["settings-size"]["columns"][:2] == ["size", "model.d_model"]
    assert "n_blocks" in tables["settings-variant"]["columns"]
    where, rates = data["provenance"]
    facts = dict(where["rows"])
    assert facts["code that trained"] == "0.1.0+gabc" and facts["data fingerprint"] == "abc"
    assert facts["FLOP convention"].startswith("train_flops: forward + backward")
    assert ["prenorm", "no sweep", "10"] in rates["rows"]


def test_results_are_renewed_while_a_study_runs(run):
    ledger = Ledger(run)
    last = ledger.cells()[-1]
    summary = (ledger.directory(last) / "summary.json").read_text()
    (ledger.directory(last) / "summary.json").unlink()
    write_results(ledger)
    pages = Pages(str(run))
    before, version = pages.data(live=True), pages.version()
    assert before["live"] == version and before["cells"]["counts"]["done"] == 29
    assert pages.version() == version
    (ledger.directory(last) / "summary.json").write_text(summary)
    assert pages.version() != version
    after = pages.data(live=True)
    assert after["cells"]["counts"]["done"] == 30 and len(after["compute"]["runs"]) == 30


def test_published_tables_and_unknown_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert scaling("report", "attnres_table2").strip() == "report-attnres_table2.html"
    page = (tmp_path / "report-attnres_table2.html").read_text(encoding="utf-8")
    assert "1.23x [1.18, 1.28]" in page
    with pytest.raises(Refusal, match="neither a run directory"):
        scaling("report", "nothing-of-this-name")


@pytest.mark.slow
def test_a_hundred_cells_fit_into_five_megabytes(tmp_path):
    widths = tuple(range(16, 16 + 8 * 9, 8))
    ledger = made_up_run(
        tmp_path / "big", widths=widths, seeds=4, inside=True, n_layers=16, n_points=3000
    )
    assert len(ledger.cells()) == 108
    scaling("report", ledger.root)
    assert (ledger.root / "report.html").stat().st_size < 5e6


def test_the_last_cell_can_be_finished_later(tmp_path):
    """What the other tests build on: a run directory as the trainer writes it."""
    ledger = made_up_run(tmp_path / "made-up", ["prenorm"], widths=(16, 24, 32))
    (cell, *_) = ledger.cells()
    finish(ledger, cell)
    dynamics(ledger, cell)
    assert ledger.status(cell).kind == "done"
