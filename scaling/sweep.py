"""Sweeps of the learning rate: what to train next, until each best one lies between two others."""

import math
from collections.abc import Iterable

from analysis.learning_rate import BestRate, best_rate
from scaling.cells import Cell, expand
from scaling.learning_rates import rate_of
from scaling.ledger import Ledger
from scaling.study import Study

NEAREST = 1.1  # rates closer than this are one
Target = tuple[str, str]  # size, variant
Losses = dict[float, float]  # learning rate -> validation loss, inf where the run diverged


def wanted(losses: Losses, centre: float, factor: float) -> list[float]:
    """The rates to train next; none where the best one has a neighbour on either side.

    Args:
      losses: of the rates trained so far.
      centre: where to begin.
      factor: between neighbours.
    """
    if not losses:
        return [rounded(centre / factor), rounded(centre), rounded(centre * factor)]
    finite = {rate: loss for rate, loss in losses.items() if math.isfinite(loss)}
    if not finite:
        return [rounded(min(losses) / factor)]
    best, missing = min(finite, key=finite.get), []
    if best == min(losses):
        missing.append(rounded(best / factor))
    if best == max(losses):
        missing.append(rounded(best * factor))
    elif best == max(finite):  # the next one diverged
        above = min(rate for rate in losses if rate > best)
        if above / best > NEAREST:
            missing.append(rounded(math.sqrt(best * above)))
    return missing


def rounded(rate: float) -> float:
    """Three digits, so that a rate names the same run in every launch."""
    return float(f"{rate:.3g}")


def sweep_study(study: Study, rates: dict[Target, Iterable[float]]) -> Study:
    """A study with a variant of its own for each rate, as prenorm-lr0.016; tokens as before."""
    variants = dict(study.variants)
    sizes = {
        name: size.model_copy(update={"learning_rates": {}}) for name, size in study.sizes.items()
    }
    for (size, variant), of_target in rates.items():
        for rate in of_target:
            variants[label(variant, rate)] = study.variants[variant]
            sizes[size].learning_rates[label(variant, rate)] = rate
    changed = {"name": f"{study.name}-tune", "variants": variants, "sizes": sizes}
    return study.model_copy(update=changed | {"learning_rate_sweep": {}})


def label(variant: str, rate: float) -> str:
    """What a variant is called in a sweep."""
    return f"{variant}-lr{rate:g}"


def sweep_cells(
    study: Study, vocab_size: int, rates: dict[Target, Iterable[float]], seeds: list[int]
) -> list[Cell]:
    """The runs of a sweep, small sizes first."""
    varied, cells = sweep_study(study, rates), []
    for size in study.sizes:
        labels = [label(v, rate) for (s, v), found in rates.items() if s == size for rate in found]
        if labels:
            cells += expand(varied, vocab_size, [size], labels, seeds)
    return cells


def diverged(ledger: Ledger, cell: Cell) -> bool:
    """Whether its numbers stopped being finite, which is a result: it need not be run again."""
    status = ledger.status(cell)
    return status.kind == "failed" and status.note.startswith("non-finite")


def losses_of(ledger: Ledger, cells: list[Cell]) -> dict[tuple[str, str], float]:
    """(size, label) -> validation loss, mean over seeds; inf where one of them diverged.

    Args:
      cells: each done or diverged.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for cell in cells:
        record, _ = ledger.summary(cell)
        loss = record["val_loss"] if record else math.inf
        found.setdefault((cell.size, cell.variant), []).append(loss)
    return {key: sum(losses) / len(losses) for key, losses in found.items()}


def centres(study: Study, targets: list[Target]) -> dict[Target, float]:
    """Where each sweep begins: at the ladder's rate."""
    return {(s, v): rate_of(study, s, v).learning_rate for s, v in targets}


def tuned(study: Study, sweeps: dict[Target, Losses]) -> tuple[Study, dict[Target, BestRate]]:
    """The study with its ladder at the best rates, the sweeps beside it; and these rates.

    Raises:
      Refusal: a sweep has no minimum inside it.
    """
    best = {(s, v): best_rate(sweeps[s, v], f"The sweep of {v} at {s}") for s, v in sweeps}
    sizes, tried = (
        dict(study.sizes),
        {v: dict(found) for v, found in study.learning_rate_sweep.items()},
    )
    for (size, variant), found in best.items():
        spec, rate = sizes[size], rounded(found.learning_rate)
        if variant == study.baseline:
            changed = {"learning_rate": rate}
        else:
            changed = {"learning_rates": spec.learning_rates | {variant: rate}}
        sizes[size] = spec.model_copy(update=changed)
        tried.setdefault(variant, {})[size] = dict(sorted(sweeps[size, variant].items()))
    return study.model_copy(update={"sizes": sizes, "learning_rate_sweep": tried}), best
