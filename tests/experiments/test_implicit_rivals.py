"""What CI-VI is compared with in the experiments: gradients of the rivals, mean field, and the Markov chains."""

import importlib

import numpy as np
import pytest
from reference import central_difference

from spatialpdvi.uncertainty.implicit import ImplicitOptions, schedule
from spatialpdvi.uncertainty.semi_implicit import Family

pytestmark = pytest.mark.slow


@pytest.fixture
def rivals(load):
    return load("implicit_rivals")


def _unit(points):
    return -0.5 * (points**2).sum(axis=1), -points


@pytest.mark.parametrize("has_own", [True, False])
def test_gradients_of_sivi_and_of_nested_means_are_those_of_their_bounds(rivals, has_own):
    family = Family(2, hidden=(6,), noise_dimensions=2, noise_scale=1.0, is_full=True)
    rng = np.random.default_rng(0)
    theta = family.start(rng) + 0.3 * rng.normal(size=family.size)
    pairs = rng.normal(size=(5, 2)), family.noise(5, rng)
    now = schedule(ImplicitOptions(pairs=5, noises=4), 1)

    def bound(theta):
        return rivals._nested(family, theta, pairs, now, _unit, rng=np.random.default_rng(1), has_own=has_own)

    numeric = central_difference(lambda theta: bound(theta)[1], theta)
    np.testing.assert_allclose(bound(theta)[0], numeric, rtol=1e-5, atol=1e-7)


def test_the_gradient_of_uivi_is_on_average_that_of_sivi_with_many_noises(rivals):
    """Both are gradients of KL, the one up to its chains and the other up to 1/K."""
    family = Family(2, hidden=(6,), noise_dimensions=2, noise_scale=1.0, is_full=True)
    rng = np.random.default_rng(0)
    theta = family.start(rng)
    now = schedule(ImplicitOptions(pairs=2000, noises=2000), 1)
    pairs = rng.normal(size=(2000, 2)), family.noise(2000, rng)
    expected, _ = rivals._nested(family, theta, pairs, now, _unit, rng=rng, has_own=True)
    found = np.mean([rivals._unbiased(family, theta, pairs, _unit, step=0.3, rng=rng)[0] for _ in range(10)], axis=0)
    assert np.linalg.norm(found - expected) < 0.15 * np.linalg.norm(expected)


def test_mean_field_is_stationary_and_no_other_diagonal_gaussian_is_better(rivals):
    rng = np.random.default_rng(0)
    features = np.column_stack([np.ones(40), rng.normal(size=(40, 2))])
    labels = (rng.random(40) < 0.4).astype(float)
    draws = rng.normal(size=(200_000, 3))

    def divergence(m, s):
        eta = (m + s * draws) @ features.T
        expected = (np.logaddexp(0, eta) - labels * eta).sum(axis=1).mean()
        return expected + 0.5 * ((m**2 + s**2) / 100).sum() - np.log(s).sum()

    m, s = rivals.mean_field(features, labels, 10.0)
    best = divergence(m, s)
    for moved in np.vstack([np.eye(6), -np.eye(6)]) * 0.1:
        assert divergence(m + moved[:3], s * np.exp(moved[3:])) > best


def test_markov_chains_have_the_moments_of_a_gaussian_and_their_r_hat_sees_a_stuck_chain(rivals):
    factor = np.linalg.cholesky(np.array([[2.0, 0.8], [0.8, 1.0]]))
    precision = np.linalg.inv(factor @ factor.T)

    def target(z):
        return -0.5 * np.einsum("nd,de,ne->n", z - 3, precision, z - 3), -(z - 3) @ precision

    drawn, rhat = rivals.hmc(target, np.full(2, 3.0), factor, chains=8, draws=500, seed=0)
    flat = drawn.reshape(-1, 2)
    assert rhat < 1.02
    np.testing.assert_allclose(flat.mean(axis=0), 3.0, atol=0.15)
    np.testing.assert_allclose(np.cov(flat.T), factor @ factor.T, atol=0.3)

    def walled(z):  # from a place beyond the wall no move is accepted
        values, gradients = target(z)
        return np.where(z[:, 0] > 4.5, 1e6 - values, values), gradients

    assert rivals.hmc(walled, np.full(2, 3.0), factor, chains=8, draws=500, seed=0)[1] > 1.1


def test_a_missing_package_of_r_is_named_and_the_others_go_on(rivals, monkeypatch, tmp_path, capsys):
    experiment = importlib.import_module("implicit")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert experiment._nodal() is None
    said = "nodal is skipped: it needs R and its package boot (Debian: apt-get install r-cran-boot).\n"
    assert capsys.readouterr().out == said
    features, labels, _ = experiment._waveform()
    assert features.shape == (400, 22)
    assert set(labels) == {0.0, 1.0}


def test_densities_of_the_toys_have_the_integral_1_and_their_gradients(rivals):
    experiment = importlib.import_module("implicit")
    for toy in experiment.TOYS.values():
        x, y = np.linspace(*toy.box[:2], 700), np.linspace(*toy.box[2:], 700)
        places = np.column_stack([part.ravel() for part in np.meshgrid(x, y)])
        area = (x[1] - x[0]) * (y[1] - y[0])
        assert np.exp(toy.log_density(places)[0]).sum() * area == pytest.approx(1.0, abs=1e-3)
        at = np.array([0.7, -1.3])
        numeric = central_difference(lambda z, toy=toy: toy.log_density(z[None])[0][0], at)
        np.testing.assert_allclose(toy.log_density(at[None])[1][0], numeric, rtol=1e-6)
