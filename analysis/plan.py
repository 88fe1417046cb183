"""What interval on a multiplier to expect of a design, before it is run."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.cells import pair, require_compute_range, require_loaded, require_sizes
from analysis.errors import Refusal
from analysis.record import Record
from analysis.shift import shared_exponent_shift
from analysis.stats import line
from analysis.table import baseline as baseline_of

N_SIMULATED = 400
MULTIPLIERS = (0.01, 100.0)  # no change to a residual connection is worth more


@dataclass(frozen=True)
class Noise:
    """Of ln L about a variant's law, standard deviations.

    `run` is a run's own, and shrinks with seeds. `interaction` is of one variant at one size (its
    lack of fit), whatever the seeds. `size` is what a size's variants share, and cancels in pairs.
    """

    run: float
    interaction: float
    size: float
    alpha: float
    source: str


# 0.14% is the median between seeds of public runs (datablations, arXiv 2305.16264). AttnRes' Table
# 2 scatters by 0.3% about its laws, most of it shared; its Block gap no more than seeds would.
TYPICAL = Noise(0.0014, 0.0, 0.003, 0.057, "typical of published runs")


@dataclass(frozen=True)
class Design(Record):
    """Sizes and seeds, what they cost and what they are worth."""

    sizes: tuple[str, ...]
    n_seeds: int
    n_runs: int
    flops: float
    low: float  # of the median 95% interval on the multiplier
    high: float
    resolved: float  # share of simulated studies whose interval excludes 1


def noise_of(df: pd.DataFrame, baseline: str | None = None) -> Noise:
    """The noise of a study that has been run.

    A run's own comes from its paired seeds, the rest from the residuals of size means. With one
    seed the two cannot be told apart, and all that is not shared counts as a run's own.

    Raises:
      Refusal: "no-baseline", "too-few-sizes", "too-few-variants", "no-compute-range".
    """
    require_loaded(df)
    base = baseline_of(df, baseline)
    others = [v for v in df["variant"].unique() if v != base]
    if not others:
        raise Refusal("too-few-variants", f"The table has '{base}' alone; noise needs a pair.")
    found = np.array([_variances(df, base, variant) for variant in others]).mean(axis=0)
    run, interaction, size, alpha = found
    sd = [math.sqrt(max(v, 0.0)) for v in (run, interaction, size)]
    return Noise(*sd, float(alpha), str(df.attrs["source"]))


def _variances(df: pd.DataFrame, base: str, variant: str) -> tuple[float, float, float, float]:
    """Of a run, of the interaction, and of a size; and the baseline's exponent."""
    pairs = pair(df, [base, variant])
    require_sizes(len(pairs.sizes), f"The comparison of '{variant}' with '{base}'", pairs.sizes)
    for name in (base, variant):
        require_compute_range(pairs.ln_compute[name], f"'{name}'")
    b = line(pairs.ln_compute[base], pairs.ln_loss(base))
    v = line(pairs.ln_compute[variant], pairs.ln_loss(variant))
    difference, mean = b.residuals - v.residuals, (b.residuals + v.residuals) / 2
    own = float(difference @ difference) / b.dof / 2  # of one variant's mean at one size
    shared = float(mean @ mean) / b.dof - own / 2
    columns = zip(pairs.losses[base], pairs.losses[variant], pairs.seeds_paired, strict=True)
    seeds = [np.log(x) - np.log(y) for x, y, paired in columns if paired and len(x) > 1]
    if not seeds:
        return own * float(np.mean(pairs.n_seeds)), 0.0, shared, b.alpha
    run = float(np.mean([d.var(ddof=1) for d in seeds])) / 2
    return run, own - run / float(np.mean(pairs.n_seeds)), shared, b.alpha


def expect(
    compute: dict[str, float],
    n_variants: int,
    n_seeds: int,
    noise: Noise = TYPICAL,
    multiplier: float = 1.25,
    level: float = 0.95,
    seed: int = 0,
) -> Design:
    """Simulates studies of this design, and gives their median interval and how often they tell.

    Args:
      compute: size -> training FLOPs of one run.
      n_variants: with the baseline.
      n_seeds: runs of each cell.
      multiplier: the truth to be found.

    Raises:
      Refusal: "too-few-sizes", "bad-option".
    """
    require_sizes(len(compute), "The design", compute)
    require_multiplier(multiplier)
    if n_seeds < 1:
        raise Refusal("bad-option", f"{n_seeds} seeds are none; give 1 or more.")
    if noise.run == noise.interaction == 0:
        raise Refusal(
            "no-noise",
            f"The losses of {noise.source} lie on their laws exactly: no noise to plan with.",
        )
    for name, value in (("noise", noise.run), ("alpha", noise.alpha)):
        if not (math.isfinite(value) and value > 0):
            raise Refusal("bad-option", f"{name} is {value}; it must be above 0.")
    x = np.log(np.array(list(compute.values())))
    x -= x.mean()
    rng, shape = np.random.default_rng(seed), (N_SIMULATED, len(x))
    size = noise.size * rng.normal(size=shape)
    own_sd = math.hypot(noise.run / math.sqrt(n_seeds), noise.interaction)
    own = own_sd * rng.normal(size=(2, *shape))
    base = -noise.alpha * x + size + own[0]
    variant = -noise.alpha * (x + math.log(multiplier)) + size + own[1]
    found = [
        shared_exponent_shift(x, b, x, v, level).ln_m for b, v in zip(base, variant, strict=True)
    ]
    n_runs = len(compute) * n_variants * n_seeds
    return Design(
        sizes=tuple(compute),
        n_seeds=n_seeds,
        n_runs=n_runs,
        flops=sum(compute.values()) * n_variants * n_seeds,
        low=float(np.exp(np.median([e.low for e in found]))),
        high=float(np.exp(np.median([e.high for e in found]))),
        resolved=float(np.mean([not e.contains(0.0) for e in found])),
    )


def require_multiplier(multiplier: float) -> None:
    """Refuse what no study is planned to find."""
    low, high = MULTIPLIERS
    if not low <= multiplier <= high:
        raise Refusal(
            "bad-option",
            f"The multiplier is {multiplier:g}; one to plan for lies between {low:g} and {high:g}.",
        )


def designs(
    compute: dict[str, float],
    n_variants: int,
    budget: float | None = None,
    noise: Noise = TYPICAL,
    multiplier: float = 1.25,
    most_seeds: int = 5,
) -> list[Design]:
    """Every run of neighbouring sizes x seeds that the budget allows, the narrowest interval first.

    Args:
      compute: size -> training FLOPs of one run, of all sizes there could be.
      budget: FLOPs of the whole study; None for no limit.

    Raises:
      Refusal: "too-few-sizes"; "bad-option"; "budget-too-small": not even three sizes with one
        seed.
    """
    require_sizes(len(compute), "The ladder", compute)
    require_multiplier(multiplier)
    if budget is not None and not budget > 0:
        raise Refusal("bad-option", f"The budget is {budget:g} FLOPs; it must be above 0.")
    ordered = dict(sorted(compute.items(), key=lambda item: item[1]))
    names, found = list(ordered), []
    for first in range(len(names) - 2):
        for last in range(first + 3, len(names) + 1):
            chosen = {name: ordered[name] for name in names[first:last]}
            for n_seeds in range(1, most_seeds + 1):
                if budget is None or sum(chosen.values()) * n_variants * n_seeds <= budget:
                    found.append(expect(chosen, n_variants, n_seeds, noise, multiplier))
    if not found:
        least = sum(list(ordered.values())[:3]) * n_variants
        raise Refusal(
            "budget-too-small",
            f"{budget:.3g} FLOPs do not train {n_variants} variants at the three smallest sizes "
            f"once, which takes {least:.3g}. Give more, or a ladder of smaller sizes.",
        )
    return sorted(found, key=lambda design: design.high / design.low)
