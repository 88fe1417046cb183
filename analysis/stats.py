"""Estimates with t intervals, and the one regression that everything here uses."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit  # scipy.stats would double the start-up time of `scaling fit`

from analysis.errors import Refusal


@dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval [low, high] at `level`."""

    value: float
    low: float
    high: float
    level: float

    def contains(self, x: float) -> bool:
        return self.low <= x <= self.high

    def exp(self) -> "Estimate":
        """The same estimate off the log scale: the interval is then asymmetric and positive."""
        return Estimate(*(_exp(v) for v in (self.value, self.low, self.high)), self.level)


def _exp(v: float) -> float:
    return math.exp(v) if v < 700 else math.inf


def t_quantile(level: float, dof: float) -> float:
    """Half-width of a two-sided t interval, in standard errors.

    Raises:
        Refusal: "bad-option": the level is no share, such as 0.95.
    """
    if not 0 < level < 1:
        raise Refusal("bad-option", f"The level is {level}; it must be between 0 and 1, as 0.95.")
    return float(stdtrit(dof, 0.5 + level / 2))


def t_interval(value: float, se: float, dof: float, level: float) -> Estimate:
    """value +- t * se."""
    half = t_quantile(level, dof) * se
    return Estimate(float(value), float(value - half), float(value + half), level)


def mean_interval(values: np.ndarray, level: float) -> Estimate:
    """Mean of [n] values, n >= 2, with a t interval of n - 1 degrees of freedom."""
    values = np.asarray(values, float)
    se = values.std(ddof=1) / math.sqrt(values.size)
    return t_interval(values.mean(), se, values.size - 1, level)


@dataclass(frozen=True)
class Line:
    """Ordinary least squares y = intercept - alpha * x over n points (n - 2 degrees of freedom)."""

    intercept: float
    alpha: float
    residuals: np.ndarray  # [n]
    unit_cov: np.ndarray  # [2, 2] of (intercept, alpha), per unit residual variance
    dof: int

    @property
    def variance(self) -> float:
        return float(self.residuals @ self.residuals) / self.dof

    @property
    def cov(self) -> np.ndarray:
        return self.variance * self.unit_cov

    def at(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Fitted y and its standard error at x."""
        x = np.asarray(x, float)
        design = np.stack([np.ones_like(x), -x], axis=-1)
        var = np.einsum("...i,ij,...j->...", design, self.cov, design)
        return self.intercept - self.alpha * x, np.sqrt(np.maximum(var, 0))


def line(x: np.ndarray, y: np.ndarray) -> Line:
    """Fit y = a - alpha x. x, y: [n], n >= 3, x not constant."""
    xm, ym = x.mean(), y.mean()
    xc = x - xm
    sxx = float(xc @ xc)
    alpha = -float(xc @ (y - ym)) / sxx
    residuals = (y - ym) + alpha * xc
    unit_cov = np.array([[1 / x.size + xm**2 / sxx, xm / sxx], [xm / sxx, 1 / sxx]])
    return Line(float(ym + alpha * xm), alpha, residuals, unit_cov, x.size - 2)
