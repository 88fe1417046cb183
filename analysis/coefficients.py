"""Multipliers from printed coefficients, and how far their rounding alone can move them."""

import itertools
import json
import math
from dataclasses import dataclass

from analysis.errors import Refusal
from analysis.reading import PUBLISHED, published_names
from analysis.record import Record


def multiplier_from_coefficients(
    A_base: float, alpha_base: float, A_var: float, alpha_var: float, C: float
) -> float:
    """m(C) = C_base(L_var(C)) / C for L = A * C^-alpha.

    C must be in the unit the coefficients were fitted in (for Attention Residuals, arXiv
    2603.15031, and Kimi Linear, PFLOP/s-days).

    Raises:
        Refusal: "bad-coefficients" where A, alpha_base or C is not above 0.
    """
    for name, value in (("A_base", A_base), ("alpha_base", alpha_base), ("A_var", A_var), ("C", C)):
        if not (math.isfinite(value) and value > 0):
            raise Refusal("bad-coefficients", f"{name} is {value}; it must be finite and above 0.")
    x = math.log(C)
    return math.exp((math.log(A_base) - math.log(A_var) + alpha_var * x) / alpha_base - x)


def rounding_box(
    A_base: float,
    alpha_base: float,
    A_var: float,
    alpha_var: float,
    C: float,
    decimals_A: int = 3,
    decimals_alpha: int = 3,
) -> tuple[float, float]:
    """Smallest and largest multiplier of any coefficients that round to the printed ones.

    The multiplier is monotone in each coefficient, so the extremes are at corners of the box.
    """
    half_A, half_alpha = 0.5 * 10.0**-decimals_A, 0.5 * 10.0**-decimals_alpha
    printed = (A_base, alpha_base, A_var, alpha_var)
    halves = (half_A, half_alpha, half_A, half_alpha)
    corners = itertools.product(*((p - h, p + h) for p, h in zip(printed, halves, strict=True)))
    values = [multiplier_from_coefficients(*corner, C) for corner in corners]
    return min(values), max(values)


@dataclass(frozen=True)
class Printed(Record):
    """What a paper's printed laws say of a variant, and what their rounding leaves open."""

    variant: str
    value: float  # m at `at`
    low: float  # of all laws that round to the printed ones
    high: float
    at: float  # PFLOP/s-days
    source: str


def printed_multipliers(table: str, baseline: str) -> list[Printed]:
    """Of a published table, if its paper prints laws for the baseline and others; else none.

    Args:
      table: name of a table that ships with the package, such as "attnres_table2".
    """
    path = PUBLISHED / f"{table}.json"
    if table not in published_names() or not path.is_file():
        return []
    about = json.loads(path.read_text(encoding="utf-8"))
    laws, digits = about["laws"], (about["decimals"],) * 2
    base = laws.pop(baseline, None)
    if base is None:
        return []
    found = []
    for variant, law in laws.items():
        printed = (base["A"], base["alpha"], law["A"], law["alpha"], about["at"])
        value, box = multiplier_from_coefficients(*printed), rounding_box(*printed, *digits)
        found.append(Printed(variant, value, *box, about["at"], about["source"]))
    return found
