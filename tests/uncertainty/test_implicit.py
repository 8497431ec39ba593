"""CI-VI against finite differences, its formulas written out, and targets whose posterior is known."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from reference import central_difference

from spatialpdvi.errors import InputError
from spatialpdvi.runtime.threads import single_threaded
from spatialpdvi.uncertainty import implicit
from spatialpdvi.uncertainty.implicit import (
    Adam,
    ImplicitOptions,
    composition_gradient,
    follow,
    implicit_steps,
    schedule,
)
from spatialpdvi.uncertainty.semi_implicit import Family, Ratios

PRECISION = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.5]])
CENTRE = np.array([1.0, -2.0, 0.5])


def _curved(points):
    """A log density in three dimensions that is not Gaussian."""
    values = -0.5 * np.einsum("nd,de,ne->n", points, PRECISION, points) - np.cosh(points[:, 0])
    return values, -points @ PRECISION - np.sinh(points[:, :1]) * np.eye(3)[0]


def fit_implicit(*arguments, **options):
    """The distribution after the last iteration, in one thread, as the intervals have it."""
    with single_threaded():
        *_, found = implicit_steps(*arguments, **options)
    return found


def _gaussian(points):
    centred = points - CENTRE
    constant = 0.5 * np.linalg.slogdet(PRECISION / (2 * np.pi))[1]
    return constant - 0.5 * np.einsum("nd,de,ne->n", centred, PRECISION, centred), -centred @ PRECISION


def _case(covariance, n=6, k=11, seed=0):
    """A family, a theta that is nothing special, pairs and noises."""
    family = Family(3, hidden=(7, 5), noise_dimensions=3, noise_scale=1.3, is_full=covariance == "full")
    rng = np.random.default_rng(seed)
    theta = family.start(rng) + 0.3 * rng.normal(size=family.size)
    return family, theta, (rng.normal(size=(n, 3)), family.noise(n, rng)), family.noise(k, rng)


def _written_out(family, theta, pairs, noises):
    """log g (n, K), one pair and one noise at a time."""
    lower, rows = family.lower(theta), []
    for u, e in zip(*pairs, strict=True):
        z = family.forward(theta, e[None])[0][0] + lower @ u
        log_p = _curved(z[None])[0][0]
        row = []
        for other in noises:
            r = np.linalg.solve(lower, z - family.forward(theta, other[None])[0][0])
            row.append(-0.5 * r @ r - np.log(np.diag(lower)).sum() - 1.5 * math.log(2 * math.pi) - log_p)
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_ratios_are_the_written_out_ones(covariance):
    case = _case(covariance)
    expected = np.log(np.exp(_written_out(*case)).mean(axis=1))
    np.testing.assert_allclose(Ratios(*case, _curved).log_ratio, expected, rtol=1e-10)


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_the_networks_backpropagation_is_its_derivative(covariance):
    family, theta, (_, noise), _ = _case(covariance)
    towards = np.random.default_rng(1).normal(size=(6, 3))
    by_theta, by_noise = family.backward(theta, family.forward(theta, noise)[1], towards)

    def value(network, e):
        return (towards * family.forward(np.concatenate([network, theta[family.network_size :]]), e)[0]).sum()

    network = theta[: family.network_size]
    np.testing.assert_allclose(by_theta, central_difference(lambda x: value(x, noise), network), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(by_noise, central_difference(lambda x: value(network, x), noise), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_the_gradient_of_the_composition_is_that_of_the_log_of_the_mean(covariance):
    """With y = E g over the same noises the composition is differentiated exactly."""
    family, theta, pairs, noises = _case(covariance)
    weights = np.random.default_rng(2).dirichlet(np.ones(6))

    def objective(theta):
        return weights @ Ratios(family, theta, pairs, noises, _curved).log_ratio

    log_y = Ratios(family, theta, pairs, noises, _curved).log_ratio
    found, _, relative = composition_gradient(family, theta, pairs, noises, _curved, log_y=log_y, weights=weights)
    np.testing.assert_allclose(relative, 1.0)
    np.testing.assert_allclose(found, central_difference(objective, theta), rtol=1e-5, atol=1e-7)


def test_the_gradient_divides_by_y_and_blocks_sum_to_the_whole(monkeypatch):
    family, theta, pairs, noises = _case("full", n=9)
    log_y = Ratios(family, theta, pairs, noises, _curved).log_ratio + np.random.default_rng(3).normal(size=9)
    weights = np.full(9, 1 / 9)

    def linear(theta):  # of which the derivative is sum_j weights_j grad g_j / y_j
        return weights @ np.exp(Ratios(family, theta, pairs, noises, _curved).log_ratio - log_y)

    whole = composition_gradient(family, theta, pairs, noises, _curved, log_y=log_y, weights=weights)
    np.testing.assert_allclose(whole[0], central_difference(linear, theta), rtol=1e-5, atol=1e-6)
    for block in (1, 4 * len(noises), 9 * len(noises)):
        monkeypatch.setattr("spatialpdvi.uncertainty.implicit._BLOCK", block)
        parts = composition_gradient(family, theta, pairs, noises, _curved, log_y=log_y, weights=weights)
        for part, expected in zip(parts, whole, strict=True):
            np.testing.assert_allclose(part, expected, rtol=1e-10, atol=1e-12)


def test_schedules_are_those_of_the_theorem():
    options = ImplicitOptions(
        step=0.003, step_covariance=0.2, smoothing=0.9, momentum=0.7, momentum_decay=0.99, growth=0.8
    )
    for t in (1, 7, 1000):
        now = schedule(options, t)
        gamma1 = 0.7 * 0.99**t
        assert now.step == pytest.approx((0.003 * t**-0.2, 0.2 * t**-0.2))
        assert now.smoothing == 0.9
        assert now.first == pytest.approx(gamma1)
        assert now.second == pytest.approx(tuple(1 - c * t**-0.4 * (1 - gamma1) ** 2 for c in (0.003, 0.2)))
        assert now[-3:] == (math.ceil(100 * t**0.8), math.ceil(1000 * t**0.8), math.ceil(1000 * t**0.8))
    assert schedule(ImplicitOptions(), 1000)[-3:] == (100, 1000, 1000)


SMALL = {"hidden": (8,), "iterations": 12, "chunk": 30, "pool": 75, "switch_every": 3, "pairs": 20, "noises": 50}


@pytest.mark.cli
def test_the_same_seed_gives_the_same_bits_for_any_number_of_threads():
    code = (
        "from test_implicit import *\n"
        "from test_implicit import _curved\n"
        "found = fit_implicit(_curved, 3, options=ImplicitOptions(**{**SMALL, 'hidden': (200, 200)}), seed=4)\n"
        "print(found.theta.tobytes().hex(), found.sample(300, 1).tobytes().hex())\n"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={
                **os.environ,
                **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), threads),
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]),
            },
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2")
    ]
    assert printed[0] == printed[1]
    assert len(printed[0]) > 10_000


def test_a_ratio_beyond_the_limit_counts_as_the_limit():
    family, theta, pairs, noises = _case("full")
    log_y = Ratios(family, theta, pairs, noises, _curved).log_ratio
    how = {"weights": np.full(6, 1 / 6), "limit": 4.0}
    low = log_y - np.log([1.0, 2.0, 4.0, 5.0, 1e9, 1e300])
    found = composition_gradient(family, theta, pairs, noises, _curved, log_y=low, **how)
    np.testing.assert_allclose(found[2], [1.0, 2.0, 4.0, 4.0, 4.0, 4.0])
    at_limit = log_y - np.log([1.0, 2.0, 4.0, 4.0, 4.0, 4.0])
    expected = composition_gradient(family, theta, pairs, noises, _curved, log_y=at_limit, **how)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-9, atol=1e-9)


def test_without_a_limit_a_ratio_beyond_all_numbers_leaves_the_gradient_finite():
    family, theta, pairs, noises = _case("full")
    log_y = Ratios(family, theta, pairs, noises, _curved).log_ratio - 1e3
    how = {"weights": np.full(6, 1 / 6), "limit": math.inf}
    gradient, _, relative = composition_gradient(family, theta, pairs, noises, _curved, log_y=log_y, **how)
    assert np.isfinite(relative).all()
    assert np.isfinite(gradient**2).all()


def test_adam_is_the_written_out_one():
    family, theta, *_ = _case("full")
    options = ImplicitOptions(step=0.01, step_covariance=0.3, momentum=0.5)
    adam, first, second = Adam(family), 0.0, 0.0
    for t in (1, 2, 3):
        now, gradient = schedule(options, t), np.sin(t * theta)
        c = np.where(np.arange(family.size) < family.network_size, 0.01, 0.3)
        gamma1 = 0.5 * 0.999**t
        gamma2 = 1 - c * t**-0.4 * (1 - gamma1) ** 2
        first, second = gamma1 * first + (1 - gamma1) * gradient, gamma2 * second + (1 - gamma2) * gradient**2
        expected = -c * t**-0.2 * first / (np.sqrt(second) + 1e-8)
        np.testing.assert_allclose(adam.step(gradient, now), expected, rtol=1e-10)


def test_the_bias_of_y_shrinks_while_it_follows():
    """E[1/y] is above 1/E[g] by the variance of y, which falls from that of one draw to beta/(2 - beta) of it."""
    family, theta, *_ = _case("full")
    rng = np.random.default_rng(5)
    pairs = (rng.normal(size=(30, 3)), family.noise(30, rng))

    def drawn(k):
        return Ratios(family, theta, pairs, family.noise(k, rng), _gaussian).log_ratio

    truth = drawn(50_000)
    early, late = [], []
    for _ in range(30):
        log_y = drawn(200)
        early.append(np.exp(truth - log_y).mean() - 1.0)
        for _ in range(40):
            log_y = follow(log_y, drawn(200), 0.1)
        late.append(np.exp(truth - log_y).mean() - 1.0)
    assert np.mean(early) > 0.0
    assert abs(np.mean(late)) < np.mean(early) / 5


def test_seeds_differ_and_the_same_one_gives_the_same_fit():
    options = ImplicitOptions(**SMALL)
    a, b = (fit_implicit(_curved, 3, options=options, seed=seed) for seed in (0, 1))
    assert not np.array_equal(a.theta, b.theta)
    again = fit_implicit(_curved, 3, options=options, seed=0)
    np.testing.assert_array_equal(a.theta, again.theta)
    assert a.trace.objective.shape == a.trace.seconds.shape == (12,)


def _watched(monkeypatch, **options):
    """The points of the gradients and of y in a fit of few iterations, and the last theta."""
    gradients, followed, log_ratio = [], [], implicit._log_ratio

    def gradient(family, theta, pairs, noises, density, **rest):
        gradients.append((theta, pairs[0], rest))
        return composition_gradient(family, theta, pairs, noises, density, **rest)

    def ratio(family, theta, *rest):
        followed.append(theta)
        return log_ratio(family, theta, *rest)

    monkeypatch.setattr(implicit, "composition_gradient", gradient)
    monkeypatch.setattr(implicit, "_log_ratio", ratio)
    found = fit_implicit(_curved, 3, options=ImplicitOptions(**SMALL | {"pairs": 1000} | options), seed=0)
    return gradients, followed, found.theta


def test_chunks_cover_the_pool_and_come_again_and_y_is_followed_beyond_the_step(monkeypatch):
    options = {"iterations": 4, "pool": 25, "chunk": 10, "switch_every": 1, "limit": 3.0, "smoothing": 0.5}
    gradients, followed, last = _watched(monkeypatch, **options)
    points = [u for _, u, _ in gradients]
    assert [len(u) for u in points] == [10, 10, 5, 10]
    np.testing.assert_array_equal(points[3], points[0])
    assert not np.isin(points[1], points[0]).any()
    assert {rest["limit"] for *_, rest in gradients} == {3.0}
    thetas = np.array([*(theta for theta, *_ in gradients), last])
    np.testing.assert_array_equal(followed[::2], thetas[:-1])  # where the next chunk starts
    np.testing.assert_allclose(followed[1::2], thetas[:-1] + np.diff(thetas, axis=0) / 0.5)


def test_the_pairs_of_a_sketch_weigh_as_much_as_all_that_were_drawn(monkeypatch):
    gradients, *_ = _watched(monkeypatch, iterations=20, pool=10, chunk=10, sketch=3)
    weights = np.array([rest["weights"] for *_, rest in gradients])
    assert weights.shape == (20, 3)
    np.testing.assert_allclose(weights, 1 / 3, atol=0.15)


def test_a_sketch_has_the_gradient_as_its_mean():
    """Of the columns that were drawn, a part is taken and weighted by one over its share."""
    family, theta, pairs, noises = _case("full", n=5)
    log_y, weights = Ratios(family, theta, pairs, noises, _curved).log_ratio, np.array([0.1, 0.3, 0.2, 0.2, 0.2])
    whole, *_ = composition_gradient(family, theta, pairs, noises, _curved, log_y=log_y, weights=weights)
    parts = [
        composition_gradient(
            family, theta, (pairs[0][[j]], pairs[1][[j]]), noises, _curved, log_y=log_y[[j]], weights=5 * weights[[j]]
        )[0]
        for j in range(5)
    ]
    np.testing.assert_allclose(np.mean(parts, axis=0), whole, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("sketch", [None, 20])
def test_a_gaussian_is_found(sketch):
    options = ImplicitOptions(
        hidden=(20,),
        covariance="full",
        iterations=400,
        pairs=50,
        chunk=100,
        noises=200,
        tracked=200,
        step=1e-3,
        step_covariance=1e-3,
        sketch=sketch,
    )
    found = fit_implicit(_gaussian, 3, options=options, seed=0, start=(CENTRE + 0.5, np.full(3, 1.3)))
    points = found.sample(4000, seed=1)
    divergence = np.mean(found.log_density(points, 4000, seed=2) - _gaussian(points)[0])
    assert abs(divergence) < 0.03
    np.testing.assert_allclose(points.mean(axis=0), CENTRE, atol=0.15)
    np.testing.assert_allclose(np.cov(points.T), np.linalg.inv(PRECISION), atol=0.25)
    assert found.trace.objective[-50:].mean() == pytest.approx(0.0, abs=0.1)


def test_the_start_sets_the_units():
    """A target that is moved and stretched has the same fit in the units of its start."""
    stretch = np.linalg.cholesky(np.linalg.inv(PRECISION))

    def unit(points):
        return -0.5 * (points**2).sum(axis=1), -points

    options = ImplicitOptions(**SMALL)
    plain = fit_implicit(unit, 3, options=options, seed=0)
    moved = fit_implicit(_gaussian, 3, options=options, seed=0, start=(CENTRE, stretch))
    np.testing.assert_allclose(moved.theta, plain.theta, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(moved.sample(5, 0), CENTRE + plain.sample(5, 0) @ stretch.T, rtol=1e-6)
    at = plain.sample(5, 0)
    np.testing.assert_allclose(
        moved.log_density(CENTRE + at @ stretch.T, 500, 0),
        plain.log_density(at, 500, 0) - np.log(np.diag(stretch)).sum(),
        rtol=1e-6,
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("hidden", (0,)), ("noise_dimensions", 0), ("noise_scale", 0.0), ("covariance", "some"), ("iterations", 0)),
        *(("chunk", 0), ("chunk", 30_000), ("pairs", 0), ("noises", 0), ("tracked", 0), ("growth", -1.0)),
        *(
            ("sketch", 0),
            ("limit", 0.5),
            ("limit", math.nan),
            ("step", 0.0),
            ("step_covariance", -1.0),
            ("smoothing", 1.0),
            ("smoothing", 0.0),
        ),
        *(("momentum", 1.1), ("momentum_decay", 1.0), ("switch_every", 0), ("step", math.nan)),
    ],
)
def test_wrong_options_are_named(option, value):
    with pytest.raises(InputError, match=f"Expected `{option}` to be .*, found"):
        ImplicitOptions(**{option: value})


@pytest.mark.parametrize(
    ("density", "expected"),
    [
        (lambda x: (x, x), r"shapes \(30,\) and \(30, 3\) for 30 points, found \(30, 3\) and \(30, 3\)"),
        (lambda x: (x[:, 0], x[:, 0]), r"found \(30,\) and \(30,\)"),
        (lambda x: (x[:, 0] * np.nan, x), "found 30 values and 0 derivatives that are not, of 30 points. Give a start"),
        (lambda x: (x[:, 0], x * np.inf), "found 0 values and 90 derivatives"),
    ],
)
def test_a_wrong_density_is_described(density, expected):
    with pytest.raises(InputError, match=expected):
        fit_implicit(density, 3, options=ImplicitOptions(**SMALL), seed=0)


@pytest.mark.parametrize(
    "start",
    [
        (np.zeros(2), np.ones(3)),
        (np.zeros(3), np.ones((3, 2))),
        (np.zeros(3), np.zeros(3)),
        (np.zeros(3), np.ones((3, 3))),
        (np.array([0, 0, np.nan]), np.ones(3)),
    ],
)
def test_a_wrong_start_is_refused(start):
    with pytest.raises(InputError, match="Expected a start"):
        fit_implicit(_curved, 3, options=ImplicitOptions(**SMALL), seed=0, start=start)


def test_points_of_other_dimensions_are_refused():
    *_, found = implicit_steps(_curved, 3, options=ImplicitOptions(**SMALL), seed=0)
    with pytest.raises(InputError, match=r"Expected points of shape \(n, 3\), found shape \(4, 2\)"):
        found.log_density(np.zeros((4, 2)), 10, 0)
