"""The largest budgets predicted from the others, beside predictors that know no law."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.cells import require_loaded, size_means
from analysis.errors import Refusal
from analysis.floor import fit_floors
from analysis.record import Record


@dataclass(frozen=True)
class Prediction:
    """One held-out size of one variant. Errors are (predicted - measured) / measured."""

    variant: str
    size: str
    pflops_days: float
    measured: float  # nats
    errors: dict[str, float]  # predictor -> relative error; a refused law is missing


@dataclass(frozen=True)
class Holdout(Record):
    """What a law fitted to the smaller sizes says of the largest."""

    n_held_out: int
    n_fitted: int  # sizes a variant, at least
    predictions: tuple[Prediction, ...]
    predictors: tuple[str, ...]
    n_compared: int  # points that all predictors predict, unless one predicts none
    mean_error: dict[str, float]  # predictor -> mean absolute relative error over these
    refusals: dict[str, str]  # "variant: predictor" -> why there is no such law


LAWS = {"power law": 0.0, "with a floor": "free"}
TRIVIAL = {
    "loss of the largest fitted": lambda x, y, at: y[-1],
    "last two, straight on": lambda x, y, at: (
        y[-1] + (y[-1] - y[-2]) / (x[-1] - x[-2]) * (at - x[-1]) if x[-1] > x[-2] else np.nan
    ),
}


def holdout(df: pd.DataFrame, n_largest: int = 2) -> Holdout:
    """Fits every variant without its `n_largest` largest sizes, and predicts them.

    The floor is either zero or free; where a free one is refused, so is its prediction. "Last two"
    goes on in ln L against ln C.

    Args:
      df: from `analysis.load`.
      n_largest: sizes of each variant that are held out.

    Raises:
      Refusal: "bad-option", "too-few-sizes": fewer than three would be left to fit.
    """
    require_loaded(df)
    if n_largest < 1:
        raise Refusal(
            "bad-option", f"--holdout largest:{n_largest} holds nothing out; give 1 or more."
        )
    predictions, refusals, fitted = [], {}, []
    for variant in df["variant"].unique():
        means = size_means(df, variant)
        kept, held = means.iloc[:-n_largest], means.iloc[-n_largest:]
        if len(kept) < 3:
            raise Refusal(
                "too-few-sizes",
                f"'{variant}' has {len(means)} sizes; without the {n_largest} largest fewer than "
                "three are left to fit. Hold out fewer, or add sizes.",
            )
        fitted.append(len(kept))
        x, y = kept["ln_compute"].to_numpy(), kept["ln_loss"].to_numpy()
        laws = {}
        for name, floor in LAWS.items():
            try:
                fits = fit_floors({variant: (np.exp(x), np.exp(y))}, floor)
                laws[name] = fits.laws[variant]
            except Refusal as reason:
                refusals[f"{variant}: {name}"] = str(reason)
        for size, row in held.iterrows():
            predicted = {
                n: float(law.predict(np.exp(row["ln_compute"]))) for n, law in laws.items()
            }
            predicted |= {n: float(np.exp(f(x, y, row["ln_compute"]))) for n, f in TRIVIAL.items()}
            measured = float(np.exp(row["ln_loss"]))
            errors = {n: v / measured - 1 for n, v in predicted.items() if np.isfinite(v)}
            compute = float(np.exp(row["ln_compute"]))
            predictions.append(Prediction(variant, str(size), compute, measured, errors))
    names = [*LAWS, *TRIVIAL]
    able = [n for n in names if any(n in p.errors for p in predictions)]
    common = [p for p in predictions if all(n in p.errors for n in able)]
    mean_error = {n: float(np.mean([abs(p.errors[n]) for p in common])) for n in able if common}
    return Holdout(
        n_largest, min(fitted), tuple(predictions), tuple(names), len(common), mean_error, refusals
    )
