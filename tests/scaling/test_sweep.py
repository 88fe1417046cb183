"""Sweeps of the learning rate: what is trained next, what is written, what results say of it."""

import math
from itertools import chain

import pandas as pd
import pytest

from analysis.errors import Refusal
from analysis.learning_rate import best_rate
from scaling.cells import expand
from scaling.errors import UserError
from scaling.ladder import earlier, write_ladder
from scaling.learning_rates import rate_of
from scaling.ledger import Ledger
from scaling.results import write_results
from scaling.study import load_study
from scaling.sweep import sweep, sweep_cells, tuned


def drive(loss, centre: float, factor: float = 2.0, n_widened: int = 12) -> dict[float, float]:
    """All rates that a sweep of this function of the rate trains."""
    known: dict[float, float] = {}

    def train(rates):
        known.update({rate: loss(rate) for rate in rates["d8", "prenorm"] if rate not in known})
        return {("d8", "prenorm"): {rate: known[rate] for rate in rates["d8", "prenorm"]}}

    sweeps, at_an_end = sweep({("d8", "prenorm"): centre}, factor, n_widened, train)
    assert not at_an_end
    return sweeps["d8", "prenorm"]


@pytest.mark.parametrize("best", [1e-3, 0.011, 0.3])
@pytest.mark.parametrize("factor", [1.5, 2.0, 4.0])
def test_a_sweep_ends_with_the_best_rate_between_two_others(best, factor):
    losses = drive(lambda rate: math.log(rate / best) ** 2, 0.02, factor)
    rates = sorted(losses)
    i = rates.index(min(losses, key=losses.get))
    assert 0 < i < len(rates) - 1
    assert rates[i - 1] <= best <= rates[i + 1]
    assert best_rate(losses).learning_rate == pytest.approx(best, rel=1e-2)


def test_an_optimum_at_the_edge_of_stability_is_the_largest_stable_rate(study):
    losses = drive(lambda r: math.log(r / 0.04) ** 2 if r < 0.035 else math.inf, 0.02)
    stable = max(rate for rate, loss in losses.items() if math.isfinite(loss))
    assert min(set(losses) - {r for r in losses if r <= stable}) / stable < 1.1
    _, best = tuned(study, {("d8", "prenorm"): losses})
    assert best["d8", "prenorm"].learning_rate == stable
    assert best["d8", "prenorm"].tolerance is None


def test_where_all_rates_diverge_smaller_ones_are_tried():
    losses = drive(lambda r: math.log(r / 1e-3) ** 2 if r < 0.005 else math.inf, 0.1)
    assert best_rate(losses).learning_rate == pytest.approx(1e-3, rel=1e-2)


def test_a_sweep_that_may_not_be_widened_says_that_it_has_no_end():
    target = ("d8", "prenorm")
    sweeps, at_an_end = sweep(
        {target: 0.02}, 2.0, 0, lambda rates: {target: {rate: -rate for rate in rates[target]}}
    )
    assert at_an_end == [target] and sorted(sweeps[target]) == [0.01, 0.02, 0.04]


@pytest.fixture
def study(raw_study, write_study):
    return load_study(write_study(raw_study))


def parabola(at: float, factor: float = 2.0) -> dict[float, float]:
    return {r: 2 + math.log(r / at) ** 2 for r in (at / factor, at * 1.1, at * factor)}


def test_the_baseline_alone_or_every_variant(study, tmp_path, raw_study, write_study):
    alone, best = tuned(study, {("d8", "prenorm"): parabola(0.02)})
    assert alone.sizes["d8"].learning_rate == pytest.approx(0.02)
    assert best["d8", "prenorm"].loss == pytest.approx(2)
    assert rate_of(alone, "d8", "attnres_full") == (0.02, "prenorm")
    assert rate_of(alone, "d12", "attnres_full") == (0.01, "")

    both, _ = tuned(alone, {("d8", "attnres_full"): parabola(0.005)})
    assert rate_of(both, "d8", "attnres_full") == (0.005, "attnres_full")
    assert rate_of(both, "d8", "attnres_block") == (0.02, "prenorm")

    write_ladder(tmp_path / "ladder.yaml", both, "scaling tune", [("d8", "attnres_full")])
    del raw_study["sizes"]
    again = load_study(write_study(raw_study | {"ladder": "ladder.yaml"}))
    assert again.sizes == both.sizes
    assert again.learning_rate_sweep == both.learning_rate_sweep

    cells = {c.variant: c for c in expand(again, 256, ["d8"])}
    assert cells["attnres_full"].train.learning_rate == 0.005
    assert cells["attnres_block"].rate_swept_for == "prenorm"
    train = again.train.model_copy(update={"learning_rate": 0.02})
    overridden = again.model_copy(update={"train": train})
    assert rate_of(overridden, "d8", "prenorm") == (0.02, "")  # nobody's sweep, as it happens


def test_a_rate_far_from_the_best_one_was_not_chosen_by_the_sweep(study):
    found, _ = tuned(study, {("d8", "prenorm"): {0.01: 3.0, 0.02: 2.0, 0.04: 2.5, 0.08: 3.0}})
    sizes = {**found.sizes, "d8": found.sizes["d8"].model_copy(update={"learning_rate": 0.08})}
    assert rate_of(found.model_copy(update={"sizes": sizes}), "d8", "prenorm") == (0.08, "")


def test_whose_sweep_it_was_is_no_part_of_a_cells_identity(study):
    cell = expand(study, 256, ["d8"], ["prenorm"])[0]
    assert cell.model_copy(update={"rate_swept_for": "prenorm"}).digest == cell.digest


def test_a_sweep_without_an_inner_minimum_writes_nothing(study):
    with pytest.raises(Refusal, match="sweep of prenorm at d8 is best at") as error:
        tuned(study, {("d8", "prenorm"): {0.1: 1.0, 0.2: 2.0, 0.4: 3.0}})
    assert error.value.code == "non-interior-minimum"


def test_runs_of_a_sweep_are_the_studys_but_for_the_rate(study):
    by_rate = sweep_cells(study, 256, {("d8", "attnres_full"): [0.01, 0.02]}, [0])
    cells = list(chain.from_iterable(by_rate.values()))
    own = expand(study, 256, ["d8"], ["attnres_full"])[0]
    assert [c.train.learning_rate for c in cells] == [0.01, 0.02]
    assert cells[0].digest == own.digest  # the ladder's own rate is among them
    assert len({c.key for c in cells}) == 2


def test_a_ladder_with_a_rate_that_diverged_can_be_read(study, tmp_path, raw_study, write_study):
    losses = parabola(0.02) | {0.1: math.inf}
    found, _ = tuned(study, {("d8", "prenorm"): losses})
    write_ladder(tmp_path / "ladder.yaml", found, "scaling tune", [("d8", "prenorm")])
    del raw_study["sizes"]
    again = load_study(write_study(raw_study | {"ladder": "ladder.yaml"}))
    assert again.learning_rate_sweep["prenorm"]["d8"][0.1] is None
    assert rate_of(again, "d8", "prenorm").swept_for == "prenorm"


def with_own_rates(study, **rates):
    size = study.sizes["d8"].model_copy(update={"learning_rates": rates})
    return study.model_copy(update={"sizes": {**study.sizes, "d8": size}})


def test_the_baselines_own_entry_gives_way_to_its_sweep(study):
    found, _ = tuned(with_own_rates(study, prenorm=0.5), {("d8", "prenorm"): parabola(0.02)})
    assert rate_of(found, "d8", "prenorm") == (0.02, "prenorm")
    assert rate_of(found, "d8", "attnres_full") == (0.02, "prenorm")


def test_a_rate_given_to_a_variant_by_hand_is_not_the_baselines(study):
    by_hand = with_own_rates(study, attnres_full=0.021)
    found, _ = tuned(by_hand, {("d8", "prenorm"): parabola(0.02)})
    assert rate_of(found, "d8", "attnres_full") == (0.021, "")


def test_a_second_sweep_goes_on_with_the_ladder_that_is_there(study, tmp_path):
    path = tmp_path / "ladder.yaml"
    first, _ = tuned(earlier(path, study), {("d8", "prenorm"): parabola(0.02)})
    write_ladder(path, first, "scaling tune", [("d8", "prenorm")])
    second, _ = tuned(earlier(path, study), {("d8", "attnres_full"): parabola(0.005)})
    assert rate_of(second, "d8", "prenorm") == (0.02, "prenorm")
    assert rate_of(second, "d8", "attnres_full") == (0.005, "attnres_full")


def test_nothing_but_a_ladder_of_these_sizes_is_overwritten(study, tmp_path):
    path = tmp_path / "file"
    for text in ("name: x\nsizes: {}\n", "sizes: {}\nlearning_rate_sweep: {}\n", "- 1\n", ""):
        path.write_text(text)
        with pytest.raises(UserError, match=r"[Gg]ive another|must hold keys"):
            earlier(path, study)
        assert path.read_text() == text


def test_a_misspelt_variant_with_rates_is_named(raw_study, write_study):
    raw_study["sizes"]["d8"]["learning_rates"] = {"attnres_blok": 0.1}
    with pytest.raises(UserError, match="did you mean 'attnres_block'"):
        load_study(write_study(raw_study))


def test_a_finished_run_keeps_whose_sweep_it_was(study, tmp_path):
    ledger = Ledger(tmp_path / "runs")
    cell = expand(study, 256, ["d8"], ["prenorm"])[0].model_copy(
        update={"rate_swept_for": "prenorm"}
    )
    ledger.add([cell], "prenorm")
    ledger.write_summary(cell, {"val_loss": 2.0})
    ledger.add([cell.model_copy(update={"rate_swept_for": ""})], "prenorm")
    rows = pd.read_csv(write_results(ledger))
    assert list(rows.rate_swept_for) == ["prenorm"]


@pytest.mark.slow
def test_a_sweep_from_the_command_line(raw_study, write_study, command, tmp_path):
    path = write_study(raw_study)
    only = ["--size", "d8", "--variant", "prenorm", "--factor", "4", "--out", "tuned"]
    planned = command("tune", path, *only, "--dry-run").stdout
    assert "d8/prenorm-lr0.0025/s0" in planned and not (tmp_path / "tuned").exists()
    said = command("tune", path, *only).stdout
    assert "Best rates" in said and "which favours it: attnres_block, attnres_full" in said
    again = command("tune", path, *only).stdout
    assert "are done already; skipped" in again and "done in" not in again

    del raw_study["sizes"]
    study = load_study(write_study(raw_study | {"ladder": "tuned/micro-tune/ladder.yaml"}))
    results = pd.read_csv(tmp_path / "tuned" / "micro-tune" / "results.csv")
    tried = study.learning_rate_sweep["prenorm"]["d8"]
    assert tried == dict(zip(results.learning_rate, results.val_loss, strict=True))
    rates = {cell.variant: cell.train.learning_rate for cell in expand(study, 256, ["d8"])}
    assert len(set(rates.values())) == 1 and min(tried) < rates["prenorm"] < max(tried)


@pytest.mark.parametrize(
    "words, say",
    [
        (["--set", "train.learning_rate=1e-3"], "overrides the ladder; leave it out"),
        (["--every-variant", "--variant", "prenorm"], "not both"),
        (["--variant", "prenrom"], "prenorm"),
        (["--ladder", "."], "is there and no ladder"),
    ],
)
def test_refusals(raw_study, write_study, command, words, say):
    done = command("tune", write_study(raw_study), *words, check=False)
    assert done.returncode == 2 and say in done.stderr
