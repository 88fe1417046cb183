"""What a fit minimises: a sum over points of a function of r = ln(fitted L) - ln L."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Objective(Protocol):
    """A function of r, whose sum over points is weighted by `weights` of ln L."""

    name: str

    def value(self, r: np.ndarray) -> np.ndarray:
        """Of each residual."""

    def slope(self, r: np.ndarray) -> np.ndarray:
        """Its derivative."""

    def curvature(self, r: np.ndarray) -> np.ndarray:
        """Its second derivative."""

    def weights(self, ln_loss: np.ndarray) -> np.ndarray:
        """Of each point."""


class InLogs:
    """Every point weighs the same."""

    def weights(self, ln_loss: np.ndarray) -> np.ndarray:
        return np.ones_like(ln_loss)


@dataclass(frozen=True)
class LeastSquares(InLogs):
    """r^2 / 2."""

    name: str = "log least squares"

    def value(self, r: np.ndarray) -> np.ndarray:
        return 0.5 * r * r

    def slope(self, r: np.ndarray) -> np.ndarray:
        return r

    def curvature(self, r: np.ndarray) -> np.ndarray:
        return np.ones_like(r)


@dataclass(frozen=True)
class LossLeastSquares:
    """(fitted L - L)^2 / 2, in nats: L^2 (e^r - 1)^2 / 2."""

    name: str = "least squares in L"

    def value(self, r: np.ndarray) -> np.ndarray:
        return 0.5 * np.expm1(r) ** 2

    def slope(self, r: np.ndarray) -> np.ndarray:
        return np.expm1(r) * np.exp(r)

    def curvature(self, r: np.ndarray) -> np.ndarray:
        return np.exp(r) * (2 * np.exp(r) - 1)

    def weights(self, ln_loss: np.ndarray) -> np.ndarray:
        return np.exp(2 * ln_loss)


@dataclass(frozen=True)
class Huber(InLogs):
    """r^2 / 2 up to delta, then delta (|r| - delta / 2); delta is in units of ln L.

    (Huber 1964; with delta = 1e-3 as in Hoffmann et al., arXiv 2203.15556, section 3.3.)
    """

    delta: float = 1e-3

    @property
    def name(self) -> str:
        return f"Huber, delta {self.delta:g} in ln L"

    def value(self, r: np.ndarray) -> np.ndarray:
        a = np.abs(r)
        return np.where(a <= self.delta, 0.5 * r * r, self.delta * (a - 0.5 * self.delta))

    def slope(self, r: np.ndarray) -> np.ndarray:
        return np.clip(r, -self.delta, self.delta)

    def curvature(self, r: np.ndarray) -> np.ndarray:
        return (np.abs(r) <= self.delta).astype(float)


@dataclass(frozen=True)
class LeastAbsolute(InLogs):
    """|r|, as Huber's function with a delta that shrinks to 1e-9 (see `analysis.logsum`)."""

    name: str = "least absolute deviations in ln L"

    def value(self, r: np.ndarray) -> np.ndarray:
        return np.abs(r)

    def slope(self, r: np.ndarray) -> np.ndarray:
        return np.sign(r)

    def curvature(self, r: np.ndarray) -> np.ndarray:
        return np.zeros_like(r)
