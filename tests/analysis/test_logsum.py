"""Newton's method for any law, and the derivatives of those that there are."""

import numpy as np
import pytest

from analysis.coupled import Coupled
from analysis.logsum import Terms, minimise
from analysis.objectives import Huber, LeastAbsolute, LeastSquares, LossLeastSquares

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(2, 12))
THETA = np.array([[-0.7, 0.3, -0.4, 0.4, 0.5], [-2.0, 0.1, 0.2, 0.8, -1.0]])


def design(floor: float | None = None) -> Terms:
    """Of theta = (ln A, alpha, ln B, beta, ln E), or with E = floor and no ln E."""
    one, zero = np.ones(12), np.zeros(12)
    rows = [[zero] * 4 + [one], [one, -X, zero, zero, zero], [zero, zero, one, -Z, zero]]
    offset = np.zeros((3, 12))
    if floor is not None:
        offset[0] = np.log(floor) if floor else -np.inf
    n = 5 if floor is None else 4
    return Terms(np.moveaxis(np.array(rows), 1, 2)[..., :n], offset, ("A", "a", "B", "b", "E")[:n])


def coupled_by_hand(theta):
    """The law as it is written down, with theta's A^k 2^(k-1), k a and so on taken apart."""
    ln_A, alpha, ln_B, beta, *ln_E, ln_k = theta
    k = np.exp(ln_k)
    A, B = (np.exp((v - (k - 1) * np.log(2)) / k) for v in (ln_A, ln_B))
    lack = A * np.exp(-alpha / k * X) + B * np.exp(-beta / k * Z)
    return np.log((np.exp(ln_E[0]) if ln_E else 0.0) + lack**k)


LAWS = {
    "additive": (design(), THETA),
    "floor pinned": (design(0.4), THETA[:, :4]),
    "coupled": (Coupled(design()), np.column_stack([THETA, [0.6, -1.2]])),
    "coupled, k = 1": (Coupled(design()), np.column_stack([THETA, [0.0, 0.0]])),
    "coupled, no floor": (Coupled(design(0.0)), np.column_stack([THETA[:, :4], [0.6, -1.2]])),
}


@pytest.mark.parametrize("name", LAWS)
def test_derivatives_are_those_of_central_differences(name):
    law, theta = LAWS[name]
    f, J, second = law.expand(theta)
    h, axes = 1e-5, np.eye(theta.shape[1])
    assert f == pytest.approx(law.ln_loss(theta), rel=1e-14)
    slopes = [(law.ln_loss(theta + h * e) - law.ln_loss(theta - h * e)) / (2 * h) for e in axes]
    assert pytest.approx(np.stack(slopes, axis=-1), rel=1e-8, abs=1e-9) == J
    s = np.random.default_rng(1).normal(size=f.shape)
    ups, downs = ([law.expand(theta + d * e)[1] for e in axes] for d in (h, -h))
    bends = (np.stack(ups, axis=-1) - np.stack(downs, axis=-1)) / (2 * h)
    hessian = second(s) - np.einsum("bn,bnp,bnq->bpq", s, J, J)
    assert hessian == pytest.approx(np.einsum("bn,bnpq->bpq", s, bends), rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("name", [n for n in LAWS if "coupled" in n])
def test_the_coupled_law_is_the_one_written_down(name):
    law, theta = LAWS[name]
    by_hand = [coupled_by_hand(row) for row in theta]
    assert law.ln_loss(theta) == pytest.approx(np.array(by_hand), rel=1e-13)


def test_coupling_of_one_is_no_coupling():
    theta = np.column_stack([THETA, [0.0, 0.0]])
    for a, b in zip(Coupled(design()).expand(theta), design().expand(THETA), strict=True):
        if callable(a):
            s = np.random.default_rng(1).normal(size=(2, 12))
            assert a(s)[:, :5, :5] == pytest.approx(b(s), rel=1e-12)
        else:
            assert a[..., : b.shape[-1]] == pytest.approx(b, rel=1e-12)


def test_k_held_stays():
    y = coupled_by_hand(np.append(THETA[0], 0.6))
    start = np.append(THETA[0] + 0.1, 0.4)[None]
    held = minimise(Coupled(design(), held=True), y, LeastSquares(), start)
    assert held.theta[0, -1] == 0.4
    assert held.converged[0]
    free = minimise(Coupled(design()), y, LeastSquares(), start)
    assert free.theta[0] == pytest.approx(np.append(THETA[0], 0.6), abs=1e-6)
    assert free.objective[0] < 1e-20 < held.objective[0]


class Linear:
    """ln L = X theta, whose least squares are known."""

    def __init__(self, X):
        self.X = X

    def ln_loss(self, theta):
        return theta @ self.X.T

    def expand(self, theta):
        J = np.broadcast_to(self.X, (len(theta), *self.X.shape))
        return self.ln_loss(theta), J, lambda s: np.einsum("bn,bnp,bnq->bpq", s, J, J)


def test_any_law_is_fitted():
    X = RNG.normal(size=(30, 3))
    y, w = RNG.normal(size=30), RNG.uniform(0.5, 2, 30)
    expected = np.linalg.solve(X.T @ (w[:, None] * X), X.T @ (w * y))
    found = minimise(Linear(X), y, LeastSquares(), np.zeros((1, 3)), w)
    assert found.theta[0] == pytest.approx(expected, rel=1e-6)


def test_least_absolute_deviations_of_a_constant_are_those_of_the_median():
    y = RNG.normal(size=31)
    found = minimise(Linear(np.ones((31, 1))), y, LeastAbsolute(), np.zeros((1, 1)))
    assert found.theta[0, 0] == pytest.approx(np.median(y), abs=1e-8)
    assert found.objective[0] == pytest.approx(np.abs(y - np.median(y)).sum(), rel=1e-7)


@pytest.mark.parametrize("objective", [LeastSquares(), Huber(0.01), LossLeastSquares()])
@pytest.mark.parametrize("law", [design(), Coupled(design())])
def test_an_absurd_start_does_not_harm_the_others(law, objective):
    """What overflows in one of a batch once became the scale of all."""
    extra = [] if isinstance(law, Terms) else [0.1]
    y = design().ln_loss(THETA[0]) + 0.01 * np.random.default_rng(1).normal(size=12)
    good = np.append(THETA[0] + 0.05, extra)
    absurd = np.append(np.full(5, 400.0), extra)
    alone = minimise(law, y, objective, good[None])
    together = minimise(law, y, objective, np.stack([good, absurd, -absurd]))
    assert alone.converged[0]
    # ln k is next to 0 here, and sums over a batch may round otherwise than over one start.
    assert together.theta[0] == pytest.approx(alone.theta[0], rel=1e-6, abs=1e-7)
