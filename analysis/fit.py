"""Power laws of loss in compute, one a variant, and the fit with one exponent for all."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.cells import pair, require_compute_range, require_loaded, require_sizes, size_means
from analysis.errors import Refusal
from analysis.record import Record
from analysis.stats import Estimate, Line, line, t_interval, t_quantile
from analysis.table import baseline as baseline_of

INTERVAL = (
    "t interval over size means (n_sizes - 2 degrees of freedom; lack of fit is included, seeds "
    "of one size are averaged and count once)"
)


@dataclass(frozen=True)
class PowerLaw:
    """L = A * C^-alpha for one variant, C in PFLOP/s-days, L in nats."""

    variant: str
    A: Estimate
    alpha: Estimate
    loss_at: Estimate  # fitted loss at the reference compute Fits.at
    r2: float | None  # of ln L over size means; None where all losses are equal
    n_sizes: int
    n_runs: int
    sizes: tuple[str, ...]
    pflops_days: tuple[float, ...]  # [n_sizes] geometric means over seeds
    losses: tuple[float, ...]  # [n_sizes] geometric means over seeds
    residuals: tuple[float, ...]  # [n_sizes] ln L - fitted ln L
    covariance: tuple[tuple[float, float], tuple[float, float]]  # of (ln A, alpha)

    def predict(
        self, pflops_days: np.ndarray, new_size: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Fitted loss with its pointwise band at any compute, as (value, low, high).

        The band is that of the law (confidence), or of the loss that one more size would have
        (prediction; its own departure from the law added), averaged over as many seeds.
        """
        x = np.log(np.asarray(pflops_days, float))
        design = np.stack([np.ones_like(x), -x], axis=-1)
        y = design @ [np.log(self.A.value), self.alpha.value]
        var = np.einsum("...i,ij,...j->...", design, np.array(self.covariance), design)
        dof = self.n_sizes - 2
        if new_size:
            var = var + np.sum(np.square(self.residuals)) / dof
        half = t_quantile(self.alpha.level, dof) * np.sqrt(np.maximum(var, 0))
        return np.exp(y), np.exp(y - half), np.exp(y + half)


@dataclass(frozen=True)
class SharedExponent:
    """ln L = ln A_v - alpha ln C with one alpha for all variants, over the sizes all of them have.

    The interval of alpha comes from the curve of the mean over variants: residuals of variants at
    one size go together, and counting them as independent would make alpha look better known.
    """

    alpha: Estimate
    A: dict[str, Estimate]
    n_sizes: int
    residuals: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Fits(Record):
    """All fits of one table. `baseline` is None where no variant is known to be one."""

    laws: dict[str, PowerLaw]
    shared: SharedExponent | None
    baseline: str | None
    at: float  # PFLOP/s-days
    level: float
    flops_convention: str | None
    interval: str = INTERVAL


def fit(
    df: pd.DataFrame, baseline: str | None = None, at: float | None = None, level: float = 0.95
) -> Fits:
    """Fit ln L = ln A - alpha ln C to each variant by ordinary least squares.

    The points are the sizes: ln L is averaged over the seeds of a size first. A size's seeds share
    its departure from a power law, so treating them as separate points would promise more than
    the sizes can; the interval has n_sizes - 2 degrees of freedom and includes lack of fit. (Form:
    Attention Residuals, arXiv 2603.15031, Fig. 4; Kaplan et al., arXiv 2001.08361.)

    Args:
        df: from `analysis.load`.
        baseline: the variant others are compared with; default "prenorm" or "baseline" if there.
        at: reference compute in PFLOP/s-days for `loss_at`; default the geometric mean of all runs.
        level: of the intervals.

    Raises:
        Refusal: "too-few-sizes" (under 3), "no-compute-range", "missing-variant", "bad-compute".
    """
    require_loaded(df)
    variants = list(df["variant"].unique())
    if at is None:
        at = float(np.exp(np.log(df["pflops_days"]).mean()))
    require_compute(at)
    laws = {v: _power_law(df, v, at, level) for v in variants}
    try:
        chosen = baseline_of(df, baseline)
    except Refusal as e:
        if e.code != "no-baseline":
            raise
        chosen = None
    shared = _shared_exponent(df, variants, level)
    return Fits(laws, shared, chosen, at, level, df.attrs.get("flops_convention"))


def require_compute(at: float) -> None:
    """Refuse a reference compute that is not a finite positive number of PFLOP/s-days."""
    if not (np.isfinite(at) and at > 0):
        raise Refusal(
            "bad-compute", f"The reference compute is {at}; give PFLOP/s-days above 0, such as 5.6."
        )


def _power_law(df: pd.DataFrame, variant: str, at: float, level: float) -> PowerLaw:
    means = size_means(df, variant)
    require_sizes(len(means), f"Variant '{variant}'", means.index)
    x, y = means["ln_compute"].to_numpy(), means["ln_loss"].to_numpy()
    require_compute_range(x, f"variant '{variant}'")
    law = line(x, y)
    ln_loss, se = law.at(np.log(at))
    return PowerLaw(
        variant=variant,
        A=t_interval(law.intercept, np.sqrt(law.cov[0, 0]), law.dof, level).exp(),
        alpha=t_interval(law.alpha, np.sqrt(law.cov[1, 1]), law.dof, level),
        loss_at=t_interval(ln_loss, se, law.dof, level).exp(),
        r2=_r_squared(law, y),
        n_sizes=len(means),
        n_runs=int(means["n_seeds"].sum()),
        sizes=tuple(means.index),
        pflops_days=tuple(np.exp(x).tolist()),
        losses=tuple(np.exp(y).tolist()),
        residuals=tuple(law.residuals.tolist()),
        covariance=tuple(tuple(row) for row in law.cov.tolist()),
    )


def _r_squared(law: Line, y: np.ndarray) -> float | None:
    total = float(((y - y.mean()) ** 2).sum())
    return 1 - float(law.residuals @ law.residuals) / total if total > 0 else None


def _shared_exponent(df: pd.DataFrame, variants: list[str], level: float) -> SharedExponent | None:
    pairs = pair(df, variants)
    n = len(pairs.sizes)
    if len(variants) < 2 or n < 3:
        return None
    x = np.stack([pairs.ln_compute[v] for v in variants])
    y = np.stack([pairs.ln_loss(v) for v in variants])
    if np.ptp(x.mean(axis=0)) < 1e-6:
        return None
    xc, yc = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    alpha = -float((xc * yc).sum() / (xc**2).sum())
    residuals = yc + alpha * xc
    mean_x, mean_residual = xc.mean(0), residuals.mean(0)
    dof = n - 2
    alpha_var = float(mean_residual @ mean_residual) / dof / float(mean_x @ mean_x)
    A = {}
    for i, variant in enumerate(variants):
        level_var = float(residuals[i] @ residuals[i]) / dof / n
        ln_A = float(y[i].mean() + alpha * x[i].mean())
        se = np.sqrt(level_var + x[i].mean() ** 2 * alpha_var)
        A[variant] = t_interval(ln_A, se, dof, level).exp()
    return SharedExponent(
        t_interval(alpha, np.sqrt(alpha_var), dof, level),
        A,
        n,
        {v: tuple(r) for v, r in zip(variants, residuals.tolist(), strict=True)},
    )
