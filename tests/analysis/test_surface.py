"""L(N, D) against the published re-analysis of Chinchilla's points, and laws that are known."""

import numpy as np
import pytest
from scipy.optimize import minimize
from shared_data import epoch

from analysis.errors import Refusal
from analysis.objectives import Huber, LeastAbsolute, LeastSquares
from analysis.surface import fit_surface


def coefficients(surface):
    return [surface.A, surface.B, surface.E, surface.alpha, surface.beta]


def test_epochs_points_under_huber():
    found = fit_surface(*epoch(), Huber(1e-3))
    assert found.n_points == 240
    digits = (3, 3, 5, 5, 5)
    rounded = [round(x, n) for x, n in zip(coefficients(found), digits, strict=True)]
    assert rounded == [477.826, 2143.417, 1.81722, 0.34731, 0.36717]
    assert found.convergence.objective == pytest.approx(0.00101827402, rel=1e-8)
    assert found.convergence.share_at_best >= 0.9
    assert found.convergence.gradient < 1e-6


def test_epochs_points_under_least_absolute_deviations():
    """The published headline, which is not Huber's optimum."""
    found = fit_surface(*epoch(), LeastAbsolute())
    expected = [482.006, 2085.436, 1.816864, 0.347813, 0.365854]
    assert coefficients(found) == pytest.approx(expected, rel=2e-6)
    assert found.convergence.share_at_best >= 0.9


def test_standard_errors_of_epochs_points():
    found = fit_surface(*epoch(), Huber(1e-3), n_resamples=1000)
    se = [found.standard_errors[k] for k in ("A", "B", "E", "alpha", "beta")]
    assert se == pytest.approx([120, 1430, 0.0255, 0.0150, 0.0207], rel=0.15)


def test_the_largest_budgets_held_out():
    N, D, loss = epoch()
    small = 6 * N * D < 1e21
    found = fit_surface(N[small], D[small], loss[small], Huber(1e-3))
    off = np.abs(found.predict(N, D) / loss - 1)[~small]
    assert round(100 * off.mean(), 2) == 1.05


def known(noise=0.0, seed=0, E=1.7, A=400.0, B=600.0, alpha=0.34, beta=0.28):
    N, D = (x.ravel() for x in np.meshgrid(np.geomspace(1e7, 1e10, 7), np.geomspace(1e9, 1e12, 6)))
    ln = np.log(E + A / N**alpha + B / D**beta)
    return N, D, np.exp(ln + noise * np.random.default_rng(seed).normal(size=len(N)))


@pytest.mark.parametrize("objective", [LeastSquares(), Huber(1e-3), LeastAbsolute()])
def test_a_law_without_noise_is_found_again(objective):
    found = fit_surface(*known(), objective)
    assert coefficients(found) == pytest.approx([400, 600, 1.7, 0.34, 0.28], rel=1e-5)
    assert found.exponent_of_N == pytest.approx(0.28 / 0.62, rel=1e-5)


def test_no_general_optimiser_finds_less():
    """Nelder-Mead from the optimum, in other parameters."""
    N, D, loss = known(0.01)
    found = fit_surface(N, D, loss, LeastSquares())

    def objective(theta):
        a, b, e, alpha, beta = theta
        f = np.log(np.exp(a - alpha * np.log(N)) + np.exp(b - beta * np.log(D)) + np.exp(e))
        return 0.5 * np.sum((f - np.log(loss)) ** 2)

    start = [np.log(found.A), np.log(found.B), np.log(found.E), found.alpha, found.beta]
    assert objective(start) == pytest.approx(found.convergence.objective, rel=1e-10)
    options = {"xatol": 1e-12, "fatol": 1e-16, "maxiter": 20_000, "maxfev": 20_000}
    again = minimize(objective, start, method="Nelder-Mead", options=options)
    assert again.fun >= found.convergence.objective * (1 - 1e-9)


def test_tied_exponents():
    found = fit_surface(*known(alpha=0.3, beta=0.3), tied=True)
    assert found.alpha == found.beta == pytest.approx(0.3, rel=1e-5)


def test_one_outlier_moves_a_robust_fit_less():
    N, D, loss = known(0.003)
    bad = loss.copy()
    bad[20] *= 1.5
    moved = {
        type(o).__name__: abs(fit_surface(N, D, bad, o).alpha - fit_surface(N, D, loss, o).alpha)
        for o in (LeastSquares(), Huber(1e-3))
    }
    assert moved["Huber"] < 0.1 * moved["LeastSquares"]


def test_clusters_are_drawn_whole():
    N, D, loss = known(0.01)
    doubled = [np.repeat(x, 2) for x in (N, D, loss)]
    alone = fit_surface(N, D, loss, n_resamples=300)
    by_cluster = fit_surface(*doubled, n_resamples=300, clusters=np.repeat(np.arange(len(N)), 2))
    naive = fit_surface(*doubled, n_resamples=300)
    se = lambda s: s.standard_errors["alpha"]  # noqa: E731
    assert se(by_cluster) == pytest.approx(se(alone), rel=0.2)
    assert se(naive) < 0.85 * se(alone)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda N, D, L: (N[:7], D[:7], L[:7]), "too-few-points"),
        (lambda N, D, L: (np.full_like(N, 1e8), D, L), "no-range"),
        (lambda N, D, L: (N, 20 * N * np.linspace(0.995, 1.005, len(N)), L), "not-varied-apart"),
        (lambda N, D, L: (N, D, 2 * L.max() - L), "not-converged"),
        (lambda N, D, L: (N, D, np.where(np.arange(len(L)) == 3, -1, L)), "not-positive"),
        (lambda N, D, L: (N, D, np.where(np.arange(len(L)) == 3, np.nan, L)), "not-positive"),
    ],
)
def test_refusals(change, code):
    with pytest.raises(Refusal) as error:
        fit_surface(*change(*known()))
    assert error.value.code == code
