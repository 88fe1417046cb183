"""L(N, D) against the published re-analysis of Chinchilla's points, and laws that are known."""

import numpy as np
import pytest
from scipy.optimize import least_squares, minimize
from scipy.stats import t
from shared_data import epoch

from analysis import surface
from analysis.coupled import _scale
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


def test_no_start_is_returned_as_a_fit():
    """Published fits have been equal to their own start points (spec/fitting.md, 1.6)."""
    N, D, loss = epoch()
    found = fit_surface(N, D, loss, Huber(1e-3))
    means = np.log(N).mean(), np.log(D).mean()
    starts = surface._starts(np.log(loss), tied=False, floor="free")
    assert len(starts) == found.convergence.n_starts
    for start in starts:
        named = surface._named(start, means, tied=False, coupled=False, floor="free")
        for name, value in named.items():
            assert name == "k" or abs(getattr(found, name) / value - 1) > 1e-4


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


GRID = np.meshgrid(np.geomspace(1e7, 1e10, 7), np.geomspace(1e9, 1e12, 6))


def known(noise=0.0, seed=0, E=1.7, A=400.0, B=600.0, alpha=0.34, beta=0.28, k=1.0, at=GRID):
    N, D = (np.ravel(x) for x in at)
    ln = np.log(E + (A / N**alpha + B / D**beta) ** k)
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


def test_whole_weights_are_repeated_points():
    N, D, loss = known(0.01)
    times = np.random.default_rng(1).integers(1, 4, len(N))
    repeated = fit_surface(*(np.repeat(x, times) for x in (N, D, loss)))
    weighted = fit_surface(N, D, loss, weights=times)
    assert coefficients(weighted) == pytest.approx(coefficients(repeated), rel=1e-6)
    objective = repeated.convergence.objective / times.mean()
    assert weighted.convergence.objective == pytest.approx(objective, rel=1e-9)
    equal = fit_surface(N, D, loss)
    assert abs(weighted.alpha / equal.alpha - 1) > 1e-4
    scaled = fit_surface(N, D, loss, weights=1e6 * times)
    assert coefficients(scaled) == pytest.approx(coefficients(weighted), rel=1e-9)


def test_weights_are_kept_in_the_bootstrap():
    N, D, loss = known(0.003)
    loss[::2] *= np.exp(0.03 * np.random.default_rng(1).normal(size=len(loss[::2])))
    weights = np.where(np.arange(len(N)) % 2, 1.0, 0.01)
    se = [
        fit_surface(N, D, loss, LeastSquares(), weights=w, n_resamples=200).standard_errors["alpha"]
        for w in (weights, None)
    ]
    assert se[0] < 0.5 * se[1]


@pytest.mark.parametrize("tied", [False, True])
def test_a_floor_is_pinned(tied):
    truth = {"E": 1.2} | ({"alpha": 0.3, "beta": 0.3} if tied else {})
    found = fit_surface(*known(**truth), floor=1.2, tied=tied, n_resamples=100)
    assert found.E == 1.2
    expected = [400, 600, 1.2, truth.get("alpha", 0.34), truth.get("beta", 0.28)]
    assert coefficients(found) == pytest.approx(expected, rel=1e-5)
    assert "E" not in found.intervals
    assert fit_surface(*known(**truth), floor=1.3, tied=tied).convergence.objective > 1e-6


COUPLED = [
    {"k": 0.7},
    {"k": 1.0},
    {"k": 2.0, "A": 40.0, "B": 60.0, "alpha": 0.2, "beta": 0.15},
    {"k": 0.6, "alpha": 0.4, "beta": 0.4, "tied": True},
    {"k": 0.7, "E": 0.8, "floor": 0.8},
]


@pytest.mark.parametrize("truth", COUPLED)
def test_a_coupled_law_without_noise_is_found_again(truth):
    truth = dict(truth)
    options = {name: truth.pop(name) for name in ("tied", "floor") if name in truth}
    found = fit_surface(*known(**truth), coupled=True, **options)
    truth = {"A": 400, "B": 600, "E": 1.7, "alpha": 0.34, "beta": 0.28} | truth
    assert coefficients(found) == pytest.approx([truth[k] for k in list(truth)[:5]], rel=1e-6)
    assert found.k == pytest.approx(truth["k"], rel=1e-6)
    assert found.effective_alpha == pytest.approx(truth["k"] * truth["alpha"], rel=1e-6)
    assert found.effective_beta == pytest.approx(truth["k"] * truth["beta"], rel=1e-6)
    N, D, loss = known(**truth)
    assert found.predict(N, D) == pytest.approx(loss, rel=1e-9)
    assert found.convergence.share_at_best >= 0.9
    assert (found.coupling.p_value > 0.9) == (truth["k"] == 1)
    assert found.coupling.k.contains(found.k)


def test_kaplans_law_is_found_again():
    """arXiv 2001.08361, Eq. 1.5 with the constants of its table 2: L = (.. + D_c / D)^alpha_D."""
    alpha_N, alpha_D, N_c, D_c = 0.076, 0.103, 6.4e13, 1.8e13
    N, D = (np.ravel(x) for x in GRID)
    loss = ((N_c / N) ** (alpha_N / alpha_D) + D_c / D) ** alpha_D
    found = fit_surface(N, D, loss, coupled=True, floor=0.0)
    assert found.E == 0
    assert found.k == pytest.approx(alpha_D, rel=1e-6)
    assert found.beta == pytest.approx(1, rel=1e-6)
    assert pytest.approx(D_c, rel=1e-4) == found.B
    assert found.effective_alpha == pytest.approx(alpha_N, rel=1e-6)
    assert found.effective_beta == pytest.approx(alpha_D, rel=1e-6)
    assert found.exponent_of_N == pytest.approx(1 / (1 + alpha_N / alpha_D), rel=1e-6)
    with pytest.raises(Refusal) as error:  # there is no floor to fit
        fit_surface(N, D, loss, coupled=True)
    assert error.value.code == "floor-at-bound"


def test_the_optimum_at_a_compute_does_not_depend_on_k():
    found = fit_surface(*known(0.003, k=0.7), coupled=True)
    best = []
    for C in (1e19, 1e22):
        ln_N = np.linspace(np.log(1e6), np.log(1e12), 200_001)
        best.append(ln_N[found.predict(np.exp(ln_N), C / 6 / np.exp(ln_N)).argmin()])
    assert (best[1] - best[0]) / np.log(1e3) == pytest.approx(found.exponent_of_N, abs=1e-4)


def test_epochs_points_coupled():
    """The additive law is nested in it, and is rejected."""
    N, D, loss = epoch()
    found = fit_surface(N, D, loss, Huber(1e-3), coupled=True)
    assert found.convergence.objective == pytest.approx(0.00095418450, rel=1e-8)
    assert found.convergence.share_at_best >= 0.9
    assert found.convergence.gradient < 1e-6
    assert [round(x, 3) for x in (found.k, found.E)] == [0.774, 1.757]
    assert found.coupling.additive == pytest.approx(0.00101827402, rel=1e-8)
    assert found.coupling.p_value < 1e-5
    assert found.coupling.k.high < 1

    def objective(theta):
        E, ln_A, ln_B, alpha, beta, k = theta
        lack = np.exp(ln_A - alpha * np.log(N)) + np.exp(ln_B - beta * np.log(D))
        return 1e3 * Huber(1e-3).value(np.log(E + lack**k) - np.log(loss)).sum()

    start = [found.E, np.log(found.A), np.log(found.B), found.alpha, found.beta, found.k]
    assert objective(start) == pytest.approx(1e3 * found.convergence.objective, rel=1e-9)
    options = {"xatol": 1e-10, "fatol": 1e-14, "maxiter": 5000, "maxfev": 5000}
    again = minimize(objective, start, method="Nelder-Mead", options=options)
    assert again.fun >= 1e3 * found.convergence.objective * (1 - 1e-9)


def test_ks_interval_is_where_the_sum_of_squares_exceeds_the_least_by_t():
    """Refitted with k held, by another optimiser in other parameters."""
    N, D, loss = known(0.01, k=0.8)
    found = fit_surface(N, D, loss, LeastSquares(), coupled=True)
    x, z = np.log(N / 1e8), np.log(D / 1e10)

    def half_sum(k):
        def residuals(theta):
            E, a, alpha, b, beta = theta
            return np.log(E + (np.exp(a - alpha * x) + np.exp(b - beta * z)) ** k) - np.log(loss)

        A, B = (found.A / 1e8**found.alpha, found.B / 1e10**found.beta)
        start = [found.E, np.log(A), found.alpha, np.log(B), found.beta]
        fitted = least_squares(residuals, start, xtol=1e-14, ftol=1e-14, gtol=1e-14)
        return fitted.cost

    dof, k = len(N) - 6, found.coupling.k
    allowed = found.convergence.objective * (1 + t.ppf(0.975, dof) ** 2 / dof)
    assert [half_sum(k.low), half_sum(k.high)] == pytest.approx([allowed] * 2, rel=1e-3)
    additive = half_sum(1.0)
    assert found.coupling.additive == pytest.approx(additive, rel=1e-8)
    F = (additive / found.convergence.objective - 1) * dof
    assert pytest.approx(F, rel=1e-6) == found.coupling.F
    assert found.coupling.p_value == pytest.approx(2 * t.sf(np.sqrt(F), dof), rel=1e-6)
    inner = [(at, value) for at, value in found.coupling.profile if 0.5 < at < 2]
    assert len(inner) >= 4
    for at, value in inner:
        assert value == pytest.approx(half_sum(at), rel=1e-6)


def test_the_scale_of_an_excess_is_that_of_asymptotic_theory():
    """With normal errors of 0.004, of density f: the variance, and 1 / 2 f(0) for |r|."""
    r, n = 0.004 * np.random.default_rng(0).normal(size=20_000), 20_000
    scale = lambda objective: _scale(r, np.ones(n), n - 6, objective)  # noqa: E731
    assert scale(LeastSquares()) == pytest.approx((r**2).sum() / (n - 6), rel=1e-9)
    assert scale(LeastAbsolute()) == pytest.approx(0.004 * np.sqrt(np.pi / 2), rel=0.08)
    assert scale(Huber(1e-5)) == pytest.approx(1e-5 * 0.004 * np.sqrt(np.pi / 2), rel=0.08)
    assert scale(Huber(1.0)) == pytest.approx(scale(LeastSquares()), rel=1e-9)


def test_a_coupled_bootstrap():
    found = fit_surface(*known(0.003, k=0.8), LeastSquares(), coupled=True, n_resamples=300)
    width = found.coupling.k.high - found.coupling.k.low
    assert found.standard_errors["k"] == pytest.approx(width / 4, rel=0.3)
    assert found.intervals["k"].contains(0.8)
    assert found.intervals["effective_alpha"].contains(0.8 * 0.34)
    assert found.intervals["exponent_of_N"].contains(0.28 / 0.62)


def test_k_is_not_determined_where_one_term_always_dominates():
    few_N, many_D = np.geomspace(1e6, 1e7, 10), np.geomspace(1e14, 1e15, 10)
    many_N, few_D = np.geomspace(1e13, 1e15, 10), np.geomspace(1e8, 1e9, 10)
    apart = np.append(few_N, many_N), np.append(many_D, few_D)
    N, D, loss = known(0.01, seed=1, at=apart)
    with pytest.raises(Refusal) as error:
        fit_surface(N, D, loss, LeastSquares(), coupled=True)
    assert error.value.code == "coupling-not-determined"
    assert fit_surface(N, D, loss, LeastSquares()).coupling is None


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


LABELS = [str(i) for i in range(42)]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"n_resamples": 1}, "bad-option"),
        ({"n_resamples": 99}, "bad-option"),
        ({"n_resamples": -1}, "bad-option"),
        ({"n_resamples": 200.5}, "bad-option"),
        ({"n_resamples": np.nan}, "bad-option"),
        ({"clusters": np.arange(42) % 4, "n_resamples": 100}, "too-few-clusters"),
        ({"clusters": ["one"] * 42, "n_resamples": 100}, "too-few-clusters"),
        ({"clusters": np.arange(41), "n_resamples": 100}, "bad-shape"),
        ({"clusters": np.arange(41)}, "bad-shape"),
        ({"clusters": 3, "n_resamples": 100}, "bad-shape"),
        ({"clusters": [*LABELS[:-1], None], "n_resamples": 100}, "bad-shape"),
        ({"clusters": np.append(np.arange(41.0), np.nan), "n_resamples": 100}, "bad-shape"),
        ({"weights": np.ones(41)}, "bad-weights"),
        ({"weights": 1.0}, "bad-weights"),
        ({"weights": np.append(np.ones(41), 0)}, "bad-weights"),
        ({"weights": np.append(np.ones(41), -1)}, "bad-weights"),
        ({"weights": np.append(np.ones(41), np.nan)}, "bad-weights"),
        ({"weights": np.append(np.ones(41), np.inf)}, "bad-weights"),
        ({"floor": "shared"}, "bad-option"),
        ({"floor": 3.0}, "floor-too-high"),
        ({"floor": -1.0}, "floor-too-high"),
        ({"floor": np.nan}, "floor-too-high"),
        ({"level": 95}, "bad-option"),
        ({"level": np.nan}, "bad-option"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(options, code):
    with pytest.raises(Refusal) as error:
        fit_surface(*known(0.003), **options)
    assert error.value.code == code
    assert str(error.value).endswith(".") and ". " not in str(error.value)


def test_a_coupled_law_needs_one_more_point():
    N, D, loss = (x[::5] for x in known(0.003))
    assert len(N) == 9
    assert fit_surface(N[:8], D[:8], loss[:8]).n_points == 8
    with pytest.raises(Refusal) as error:
        fit_surface(N[:8], D[:8], loss[:8], coupled=True)
    assert error.value.code == "too-few-points"
    assert "6 parameters" in str(error.value)
    assert fit_surface(N, D, loss, coupled=True, floor=1.7).n_points == 9


def test_any_labels_are_clusters():
    of_text = fit_surface(*known(0.003), n_resamples=100, clusters=LABELS)
    of_numbers = fit_surface(*known(0.003), n_resamples=100, clusters=np.arange(42))
    assert of_text.standard_errors == of_numbers.standard_errors
