"""Sweeps of the learning rate, widened until each best rate lies between two others."""

import math
from collections.abc import Callable, Iterable

from analysis.learning_rate import NEAREST, BestRate, best_rate
from scaling.cells import Cell, expand
from scaling.ledger import Ledger
from scaling.study import Study

Target = tuple[str, str]  # size, variant
Losses = dict[float, float]  # learning rate -> validation loss, inf where the run diverged
Train = Callable[[dict[Target, list[float]]], dict[Target, Losses]]


def sweep(
    centres: dict[Target, float], factor: float, n_widened: int, train: Train
) -> tuple[dict[Target, Losses], list[Target]]:
    """(losses by target and rate, the targets whose best rate still lies at an end).

    Args:
      centres: where each sweep begins: three rates, a factor apart.
      factor: between neighbours.
      n_widened: how often sweeps may be widened.
      train: from all rates of each target to their losses; what is known is not trained again.
    """
    rates = {t: [rounded(c * factor**k) for k in (-1, 0, 1)] for t, c in centres.items()}
    sweeps = train(rates)
    for _ in range(n_widened):
        missing = {t: wanted(losses, factor) for t, losses in sweeps.items()}
        if not any(missing.values()):
            break
        rates = {t: [*rates[t], *missing[t]] for t in rates}
        sweeps = train(rates)
    return sweeps, [t for t, losses in sweeps.items() if wanted(losses, factor)]


def wanted(losses: Losses, factor: float) -> list[float]:
    """The rates to train next; none where the best one has a neighbour on either side."""
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


def label(variant: str, rate: float) -> str:
    """What a variant is called in a sweep's run directory."""
    return f"{variant}-lr{rate:g}"


def sweep_cells(
    study: Study, vocab_size: int, rates: dict[Target, Iterable[float]], seeds: list[int]
) -> dict[tuple[Target, float], list[Cell]]:
    """The runs of a sweep by target and rate, one a seed, small sizes first.

    Each rate is a variant of its own, as prenorm-lr0.016, in a study that else is the same.
    """
    variants = dict(study.variants)
    sizes = {n: size.model_copy(update={"learning_rates": {}}) for n, size in study.sizes.items()}
    for (size, variant), of_target in rates.items():
        for rate in of_target:
            variants[label(variant, rate)] = study.variants[variant]
            sizes[size].learning_rates[label(variant, rate)] = rate
    changed = {"name": f"{study.name}-tune", "variants": variants, "sizes": sizes}
    varied = study.model_copy(update=changed | {"learning_rate_sweep": {}})
    return {
        ((size, variant), rate): expand(varied, vocab_size, [size], [label(variant, rate)], seeds)
        for (size, variant), of_target in rates.items()
        for rate in of_target
    }


def diverged(ledger: Ledger, cell: Cell) -> bool:
    """Whether its numbers stopped being finite, which is a result: it need not be run again."""
    status = ledger.status(cell)
    return status.kind == "failed" and status.note.startswith("non-finite")


def mean_loss(ledger: Ledger, cells: list[Cell]) -> float:
    """Validation loss, mean over cells that are done; inf where one diverged."""
    records = [ledger.summary(cell)[0] for cell in cells]
    return sum(r["val_loss"] if r else math.inf for r in records) / len(records)


def tuned(study: Study, sweeps: dict[Target, Losses]) -> tuple[Study, dict[Target, BestRate]]:
    """The study with its ladder at the best rates, the sweeps beside it; and these rates.

    Raises:
      Refusal: a sweep has no minimum inside it.
    """
    best = {(s, v): best_rate(sweeps[s, v], f"The sweep of {v} at {s}") for s, v in sweeps}
    sizes = dict(study.sizes)
    tried = {variant: dict(by_size) for variant, by_size in study.learning_rate_sweep.items()}
    for (size, variant), found in best.items():
        spec, rate = sizes[size], rounded(found.learning_rate)
        if variant == study.baseline:
            others = {v: r for v, r in spec.learning_rates.items() if v != variant}
            changed = {"learning_rate": rate, "learning_rates": others}
        else:
            changed = {"learning_rates": spec.learning_rates | {variant: rate}}
        sizes[size] = spec.model_copy(update=changed)
        tried.setdefault(variant, {})[size] = {
            rate: loss if math.isfinite(loss) else None
            for rate, loss in sorted(sweeps[size, variant].items())
        }
    return study.model_copy(update={"sizes": sizes, "learning_rate_sweep": tried}), best
