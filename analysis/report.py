"""Everything that `scaling fit` says of a table, computed in one place."""

from dataclasses import dataclass, field

import pandas as pd

from analysis.bootstrap import Bootstraps, bootstraps
from analysis.coefficients import Printed, printed_multipliers
from analysis.errors import Refusal
from analysis.fit import Fits, fit
from analysis.forms import Form, forms
from analysis.holdout import Holdout, holdout
from analysis.multiplier import Multiplier, multiplier, require_point
from analysis.practice import Practice, practice
from analysis.robustness import Robustness, robustness
from analysis.simultaneous import simultaneous
from analysis.stats import Estimate


@dataclass(frozen=True)
class Report:
    """A table's laws, multipliers and what moves them; by variant where it says so."""

    fits: Fits
    practice: Practice
    multipliers: list[Multiplier]
    refusals: dict[str, Refusal]  # variant -> why it has no multiplier
    together: dict[str, Estimate]  # multipliers whose intervals hold jointly
    robustness: list[Robustness]
    bootstraps: dict[str, Bootstraps]
    printed: list[Printed]  # what a published table's paper printed
    forms: list[Form] = field(default_factory=list)
    holdout: Holdout | None = None

    def to_dict(self) -> dict:
        """Plain numbers, strings, lists and dicts, at full precision."""
        return {
            "learning_rates": self.practice.to_dict(),
            "fits": self.fits.to_dict(),
            "multipliers": {m.variant: m.to_dict() for m in self.multipliers},
            "together": {v: vars(e) for v, e in self.together.items()},
            "robustness": {r.variant: r.to_dict() for r in self.robustness},
            "bootstrap": {v: b.to_dict() for v, b in self.bootstraps.items()},
            "printed": {p.variant: p.to_dict() for p in self.printed},
            "forms": [f.to_dict() for f in self.forms],
            "holdout": self.holdout and self.holdout.to_dict(),
            "refusals": {v: {"code": r.code, "message": str(r)} for v, r in self.refusals.items()},
        }


def report(
    df: pd.DataFrame,
    baseline: str | None = None,
    at: float | None = None,
    at_loss: float | None = None,
    *,
    n_held_out: int = 0,
    n_resamples: int = 10_000,
    seed: int = 0,
    with_forms: bool = False,
) -> Report:
    """All of it. A variant that cannot be compared does not keep the others from being reported.

    Args:
      df: from `analysis.load`.
      baseline, at, at_loss: as of `analysis.multiplier`.
      n_held_out: largest sizes to predict from the others.
      n_resamples, seed: of the bootstraps; 0 resamples for none.
      with_forms: other laws and objectives too.

    Raises:
      Refusal: those of `analysis.fit` and `analysis.holdout`.
    """
    require_point(at, at_loss)
    fits = fit(df, baseline=baseline, at=at)
    others = [v for v in fits.laws if fits.baseline is not None and v != fits.baseline]
    found, refusals = [], {}
    for variant in others:
        try:
            found.append(multiplier(df, variant, fits.baseline, at, at_loss=at_loss))
        except Refusal as reason:
            refusals[variant] = reason
    names = [m.variant for m in found]
    table = str(df.attrs.get("source", ""))
    return Report(
        fits=fits,
        practice=practice(df),
        multipliers=found,
        refusals=refusals,
        together=simultaneous(df, found),
        robustness=[
            robustness(df, v, fits.baseline, at, at_loss=at_loss, seed=seed) for v in names
        ],
        bootstraps=bootstraps(df, found, n_resamples, seed) if n_resamples else {},
        printed=printed_multipliers(table, fits.baseline) if fits.baseline else [],
        forms=forms(df, seed) if with_forms else [],
        holdout=holdout(df, n_held_out) if n_held_out else None,
    )
