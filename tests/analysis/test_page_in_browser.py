"""The page as a person meets it, in Chromium without a window."""

import itertools
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from made_up_runs import finish, made_up_run
from made_up_studies import study as made_up_table

from analysis import load
from analysis.page import Study, html, page_data
from analysis.render import number
from analysis.stats import Estimate
from scaling.commands.analyse import fit as fit_command
from scaling.files import lock
from scaling.ledger import Ledger
from scaling.page import Pages
from scaling.results import write_results
from scaling.serve import start, stop

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

# Contrast of every visible text with what is behind it, least first.
CONTRASTS = """() => {
  const rgb = (words) => words.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.body.querySelectorAll('*')) {
    const texts = [...node.childNodes].filter((n) => n.nodeType === 3 && n.data.trim());
    const text = texts.map((n) => n.data).join('');
    const box = node.getBoundingClientRect();
    if (!text || !box.width || ['SCRIPT', 'OPTION'].includes(node.tagName)) continue;
    const style = getComputedStyle(node);
    const front = rgb(node instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(front), light(behind(node))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), node.tagName, text.slice(0, 40)]);
  }
  return found.sort((x, y) => x[0] - y[0]);
}"""

# Pairs of texts of one drawing that lie over each other.
OVERLAPS = """() => [...document.querySelectorAll('.plot svg')].flatMap((drawing) => {
  const frame = drawing.getBoundingClientRect();
  const texts = [...drawing.querySelectorAll('text')]
    .map((t) => ({ text: t.textContent, at: t.getBoundingClientRect() }));
  const apart = (p, q) => p.left > q.right - 1 || q.left > p.right - 1
    || p.top > q.bottom - 2 || q.top > p.bottom - 2;
  const over = texts.flatMap((a, i) => texts.slice(i + 1)
    .filter((b) => !apart(a.at, b.at)).map((b) => [a.text, b.text]));
  const cut = texts.filter((a) => a.at.left < frame.left - 1 || a.at.right > frame.right + 1);
  return [...over, ...cut.map((a) => [a.text, 'cut off'])];
})"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        yield driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    root = made_up_run(tmp_path_factory.mktemp("runs") / "made-up", seeds=2, inside=True).root
    fit_command(str(root))
    (root / "report.html").write_text(html(Pages(str(root)).data()), encoding="utf-8")
    return root


@pytest.fixture
def visit(browser):
    """visit(url, width, scheme) -> a page; what went wrong on any is an error at the end."""
    contexts, wrong = [], []

    def opened(url: str, width: int = 1280, scheme: str = "light"):
        contexts.append(
            browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        )
        page = contexts[-1].new_page()
        page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(f"a dialog: {dialog.message}"))
        page.on(
            "request",
            lambda r: None if r.url.startswith((url, "blob:", "data:")) else wrong.append(r.url),
        )
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong


@pytest.fixture
def page(run, visit):
    return visit((run / "report.html").as_uri())


def lines(page, figure: str) -> int:
    return page.locator(f"#{figure} .plot path.line").count()


def labels(page, figure: str) -> list[str]:
    return page.locator(f"#{figure}-plot text").all_text_contents()


def test_numbers_on_the_page_are_those_of_fits_json(page, run):
    written = json.loads((run / "fits.json").read_text())
    for variant, m in written["multipliers"].items():
        (row,) = [
            r
            for r in page.locator("#multipliers-table tbody tr").all()
            if r.locator("th").text_content() == variant
        ]
        cells = [text.strip() for text in row.locator("td").all_text_contents()]
        assert cells[0] == number(Estimate(**m["shared"]), unit="x")
        assert cells[1] == number(Estimate(**written["together"][variant]), unit="x")
        told = f"{variant} ({cells[0]}, jointly {cells[1].split(' ', 1)[1]})"
        assert told in page.locator("#verdict").text_content()
    text = page.locator("#laws-table").text_content()
    for law in written["fits"]["laws"].values():
        assert number(Estimate(**law["alpha"]), 4) in text
    assert page.locator("#verdict .sentences p").count() == 3


def test_variants_are_toggled_in_all_figures(page):
    figures = ("loss-compute", "training-curve", "depth")
    before = [lines(page, f) for f in figures]
    button = page.locator("#loss-compute-variant-1")
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert page.locator("#loss-compute-variant-1").get_attribute("aria-pressed") == "false"
    assert page.evaluate("document.activeElement.id") == "loss-compute-variant-1"
    assert all(lines(page, f) < n for f, n in zip(figures, before, strict=True))
    page.locator("#training-curve-variant-1").click()
    assert [lines(page, f) for f in figures] == before


def test_axes_conventions_and_seeds_are_chosen(page):
    log = labels(page, "loss-compute")
    page.locator("#loss-xlog").click()
    assert labels(page, "loss-compute") != log
    page.locator("#loss-axis").select_option("6nd")
    assert any("6nd" in words for words in labels(page, "loss-compute"))
    assert any("6nd" in words for words in labels(page, "multiplier"))
    page.locator("#loss-axis").select_option("seconds")
    assert "training time (s), wall-clock" in labels(page, "loss-compute")
    points = page.locator("#loss-compute .mark")
    runs = points.count()
    page.locator("#loss-means").click()
    assert points.count() == runs - 15  # two seeds of each of fifteen
    page.locator("#loss-show").select_option("relative")
    assert any("against the baseline" in words for words in labels(page, "loss-compute"))


def test_bands_and_the_maps_mode_are_chosen(page):
    bands = page.locator("#multiplier-plot .band, #loss-compute-plot .band")
    shown = bands.count()
    page.locator("#multiplier-bands").click()
    assert shown > 0 and bands.count() == 0
    assert "source removed (8,192 tokens)" in page.locator("#alpha").text_content()
    page.locator("#inside-mode").select_option("average")
    assert "replaced by its mean over tokens (8,192" in page.locator("#alpha").text_content()
    page.locator("#ablation-summary").click()
    assert "embedding" in page.locator("#ablation-values").text_content()


def test_training_curves_change_with_their_controls(page):
    one = lines(page, "training-curve")
    assert one == 3  # means over seeds
    page.locator("#training-means").click()
    assert lines(page, "training-curve") == 6
    page.locator("#training-size").select_option("d16")
    page.locator("#training-x").select_option("tokens")
    assert "tokens" in labels(page, "training-curve")
    page.locator("#training-show").select_option("difference")
    assert lines(page, "training-curve") == 4  # not of the baseline itself
    page.locator("#training-means").click()
    assert "t intervals over the seeds" in page.locator("#training-curve").text_content()


def test_a_pointer_shows_the_value_beneath_it(page, run):
    figure = page.locator("#loss-compute-plot > svg")
    figure.scroll_into_view_if_needed()
    mark = page.locator("#loss-compute-plot .mark").first
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = page.locator("#loss-compute-plot .tip")
    assert tip.is_visible()
    shown = float(re.search(r"loss ([\d.]+) nats", tip.text_content())[1])
    losses = load(run)["loss"]
    assert (abs(losses - shown) < 6e-5).any()
    page.mouse.move(5, 5)
    assert not tip.is_visible()


def test_the_keyboard_reaches_everything_and_walks_along_charts(page):
    reached = []
    for _ in range(120):
        page.keyboard.press("Tab")
        at = page.evaluate("document.activeElement.id || document.activeElement.className")
        if page.evaluate("document.activeElement === document.body"):  # past the end
            break
        reached.append(at)
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", at
    assert reached[0] == "skip" and reached[1:3] == ["theme", "print"]
    for name in ("to-laws", "loss-show", "loss-xlog", "loss-compute-variant-0", "training-size",
                 "inside-cell", "depth-metric-1", "download-fits.json"):  # fmt: skip
        assert name in reached, name
    page.locator("#multiplier-plot > svg").focus()
    page.keyboard.press("ArrowRight")
    first = page.locator("#announce").text_content()
    page.keyboard.press("ArrowRight")
    assert re.search(r"\d\.\d\dx \[[\d.]+, [\d.]+\]", first)
    assert page.locator("#announce").text_content() != first
    page.keyboard.press("Escape")
    assert not page.locator("#multiplier-plot .tip").is_visible()
    page.locator("#loss-xlog").focus()
    page.keyboard.press("Enter")
    assert page.locator("#loss-xlog").get_attribute("aria-pressed") == "false"
    assert page.evaluate("document.activeElement.id") == "loss-xlog"


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_can_be_read(run, visit, width, scheme, tmp_path):
    page = visit((run / "report.html").as_uri(), width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ratio, *where = page.evaluate(CONTRASTS)[0]
    assert ratio >= 4.5, where
    assert page.evaluate(OVERLAPS) == []
    page.screenshot(path=tmp_path / f"{width}-{scheme}.png", full_page=True)
    assert (tmp_path / f"{width}-{scheme}.png").stat().st_size > 50_000
    page.locator("#theme").click()
    assert page.evaluate(CONTRASTS)[0][0] >= 4.5


def test_what_a_screen_reader_needs(page):
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.title() == "made-up: scaling report"
    levels = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3')].filter((h) => h.offsetParent)"
        ".map((h) => Number(h.tagName[1]))"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    playwright.expect(page.locator("details table")).to_have_count(7)
    assert page.evaluate(
        "[...document.querySelectorAll('table')].every((t) => t.caption && t.caption.textContent"
        " && [...t.querySelectorAll('th')].every((h) => ['col', 'row'].includes(h.scope)))"
    )
    named = page.evaluate(
        "[...document.querySelectorAll('button, select, .plot > svg')].map((c) => c.ariaLabel"
        " || (c.labels && c.labels.length ? c.labels[0].textContent : c.textContent))"
    )
    assert all(named)
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(set(ids)) == len(ids)


def test_axe_finds_nothing_serious(run, visit):
    """With axe-core of $AXE_CORE or of npm, which is no part of this repository."""
    source = _axe()
    if source is None:
        pytest.skip("axe-core is not installed: npm install -g axe-core")
    for scheme in ("light", "dark"):
        page = visit((run / "report.html").as_uri(), 1280, scheme)
        page.evaluate(source.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run().then((r) => r.violations)")
        assert [(v["id"], v["impact"], v["nodes"][0]["html"][:120]) for v in found] == []


def _axe() -> Path | None:
    places = [os.environ.get("AXE_CORE", "")]
    if shutil.which("npm"):
        root = subprocess.run(["npm", "root", "-g"], capture_output=True, text=True).stdout.strip()
        places.append(f"{root}/axe-core/axe.min.js")
    return next((Path(p) for p in places if p and Path(p).is_file()), None)


def test_names_do_nothing(visit, tmp_path):
    evil = [
        "<img src=x onerror=alert(1)>",
        "</script><script>alert(2)</script>",
        "{{x}}",
        "y" * 300,
    ]
    df = made_up_table({"prenorm": 1.0} | dict.fromkeys(evil, 1.1))
    df["size"] = "<b>" + df["size"]
    page_path = tmp_path / "report.html"
    page_path.write_text(html(page_data(load(df), Study(evil[0]))), encoding="utf-8")
    for width in (1280, 400):
        page = visit(page_path.as_uri(), width)
        assert page.locator("h1").text_content() == evil[0]
        assert page.locator("img, b b, td b").count() == 0
        assert evil[1] in page.locator("#laws-table").text_content()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.locator("#loss-compute-plot > svg").focus()
        for key in ("ArrowRight", "ArrowDown", "ArrowDown"):
            page.keyboard.press(key)
        page.locator("#loss-compute-summary").click()


def test_results_and_fits_can_be_taken_along(page, run):
    for name in ("results.csv", "fits.json"):
        with page.expect_download() as waiting:
            page.locator(f"id=download-{name}").click()
        got = Path(waiting.value.path()).read_text(encoding="utf-8")
        want = (run / name).read_text(encoding="utf-8")
        assert waiting.value.suggested_filename == name
        assert (json.loads(got) == json.loads(want)) if name == "fits.json" else (got == want)


def test_on_paper_there_are_no_controls_and_no_dark(run, visit, tmp_path):
    page = visit((run / "report.html").as_uri(), scheme="dark")
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").read_bytes().count(b"/Type /Page\n") in range(4, 20)
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for hidden in ("nav", ".controls", "#theme", "#downloads", "details"):
        assert not page.locator(hidden).first.is_visible()
    assert page.locator("#loss-compute-plot > svg").is_visible()


def test_a_served_page_follows_the_study(visit, tmp_path):
    ledger = made_up_run(tmp_path / "made-up", widths=(16, 24, 32, 48))
    *_, last = ledger.cells()
    (ledger.directory(last) / "summary.json").unlink()
    write_results(ledger)
    with lock(ledger.lock_path(last)):
        server = start(Pages(str(ledger.root)), 0)
        try:
            page = visit(f"http://127.0.0.1:{server.server_address[1]}/")
            assert "11 of 12 cells done" in page.locator("#summary").text_content()
            assert page.locator("#running-table").count() == 1
            page.locator("#loss-compute-variant-1").click()
            page.locator("#training-size").select_option("d16")
            page.locator("#training-size").focus()
            finish(ledger, last)
            renewed = page.locator("#summary", has_text="12 of 12 cells done")
            renewed.wait_for(timeout=30_000)
            assert page.locator("#live").text_content().startswith("Live")
            pressed = page.locator("#loss-compute-variant-1").get_attribute("aria-pressed")
            assert pressed == "false" and page.locator("#training-size").input_value() == "d16"
            assert page.evaluate("document.activeElement.id") == "training-size"
        finally:
            stop(server)


@pytest.mark.slow
def test_three_hundred_cells_are_painted_soon(visit, tmp_path):
    widths = tuple(range(16, 16 + 8 * 10, 8))
    ledger = made_up_run(tmp_path / "big", widths=widths, seeds=10, inside=True, n_points=2000)
    assert len(Ledger(ledger.root).cells()) == 300
    path = tmp_path / "report.html"
    path.write_text(html(Pages(str(ledger.root)).data()), encoding="utf-8")
    started = time.monotonic()
    page = visit(path.as_uri())
    assert time.monotonic() - started < 10
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    page.wait_for_timeout(300)
    assert page.evaluate(paint) < 1500
    assert page.locator("#differences-table tbody tr").count() == 30
