"""The multiplier's interval by resampling, as a check on the closed form."""

from dataclasses import dataclass
from math import comb

import numpy as np
import pandas as pd

from analysis.cells import Pairs, pair
from analysis.errors import Refusal
from analysis.multiplier import Multiplier, multiplier
from analysis.record import Record
from analysis.stats import Estimate

MIN_RESAMPLED = 6  # sizes
MIN_RESAMPLES = 100


@dataclass(frozen=True)
class Bootstraps(Record):
    """Percentile intervals of one shared-exponent multiplier."""

    parametric: Estimate
    sizes: Estimate | None
    runs: Estimate | None
    refused: str | None  # why sizes are not resampled
    n_resamples: int
    seed: int


def bootstraps(
    df: pd.DataFrame, multipliers: list[Multiplier], n_resamples: int = 10_000, seed: int = 0
) -> dict[str, Bootstraps]:
    """Every kind, for each of these multipliers whose curves do not cross."""
    found = {}
    for m in (m for m in multipliers if m.crosses_at is None):
        values, refused = {}, None
        for kind in ("parametric", "sizes", "runs"):
            try:
                values[kind] = bootstrap(
                    df, m.variant, m.baseline, kind, n_resamples, m.level, seed
                )
            except Refusal as reason:
                if reason.code != "too-few-sizes":
                    raise
                values[kind], refused = None, str(reason)
        found[m.variant] = Bootstraps(**values, refused=refused, n_resamples=n_resamples, seed=seed)
    return found


def bootstrap(
    df: pd.DataFrame,
    variant: str,
    baseline: str | None = None,
    kind: str = "parametric",
    n_resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """The shared-exponent multiplier with a percentile interval, always resampled in pairs.

    Percentiles of so few points are too narrow by the factor that t has over the normal
    distribution; `analysis.multiplier` is the headline, and this its check.

    Args:
      df, variant, baseline, level: as of `analysis.multiplier`.
      kind: "parametric": normal noise about both laws, with the covariance of their residuals at
        one size; "sizes": whole sizes are drawn, both variants and all their seeds together;
        "runs": sizes, and then seeds of each, both variants of a seed together.

    Raises:
      Refusal: those of `analysis.multiplier`; "bad-option"; "too-few-sizes": under six for
        "sizes" and "runs", of which some draws would have no slope.
    """
    if kind not in ("parametric", "sizes", "runs"):
        raise Refusal("bad-option", f"kind is {kind!r}; it must be parametric, sizes or runs.")
    if n_resamples < MIN_RESAMPLES:
        raise Refusal(
            "bad-option",
            f"{n_resamples} resamples have no percentiles to speak of; {MIN_RESAMPLES} are needed.",
        )
    m = multiplier(df, variant, baseline, level=level)  # which refuses what has no answer
    names = m.baseline, m.variant
    pairs = pair(df, [*names])
    n = len(pairs.sizes)
    x = np.stack([pairs.ln_compute[v] for v in names])
    y = np.stack([pairs.ln_loss(v) for v in names])
    rng, (value, fitted) = np.random.default_rng(seed), _shift(x, y)
    if kind == "parametric":
        residuals = y - fitted
        covariance = residuals @ residuals.T / (n - 1.5)  # three parameters of two curves
        noise = rng.multivariate_normal(np.zeros(2), covariance, (n_resamples, n))
        draws, _ = _shift(x, fitted + np.moveaxis(noise, -1, 1))
    else:
        _require_resampled(n)
        drawn = rng.integers(0, n, (n_resamples, n))
        drawn = drawn[np.ptp(drawn, axis=1) > 0]
        seeds = _seeds_drawn(rng, pairs, names, drawn) if kind == "runs" else y[:, drawn]
        draws, _ = _shift(np.moveaxis(x[:, drawn], 0, 1), np.moveaxis(seeds, 0, 1))
    low, high = np.quantile(draws, ((1 - level) / 2, (1 + level) / 2))
    return Estimate(float(value), float(low), float(high), level).exp()


def _require_resampled(n: int) -> None:
    if n < MIN_RESAMPLED:
        raise Refusal(
            "too-few-sizes",
            f"{n} sizes have {comb(2 * n - 1, n)} distinct resamples, some without a "
            f'slope; {MIN_RESAMPLED} are needed. Use kind "parametric", or the t interval.',
        )


def _seeds_drawn(rng, pairs: Pairs, names, drawn: np.ndarray) -> np.ndarray:
    """Mean ln L over seeds drawn anew at every drawn size. [2, n_resamples, n_sizes]."""
    y = np.empty((2, *drawn.shape))
    for i, paired in enumerate(pairs.seeds_paired):
        here = drawn == i
        which = None
        for k, name in enumerate(names):
            ln_L = np.log(pairs.losses[name][i])
            if which is None or not paired:
                which = rng.integers(0, len(ln_L), (here.sum(), len(ln_L)))
            y[k, here] = ln_L[which].mean(axis=1)
    return y


def _shift(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ln m under one exponent, and both fitted laws. x, y: [..., 2, n_sizes]."""
    mean_x, mean_y = x.mean(-1, keepdims=True), y.mean(-1, keepdims=True)
    xc, yc = x - mean_x, y - mean_y
    alpha = -(xc * yc).sum((-2, -1)) / (xc**2).sum((-2, -1))
    fitted = mean_y - alpha[..., None, None] * xc
    dy, dx = (m[..., 0, 0] - m[..., 1, 0] for m in (mean_y, mean_x))
    return dy / alpha + dx, fitted
