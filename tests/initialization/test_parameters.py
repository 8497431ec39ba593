"""Hyperparameters and globals that follow from start labels."""

import numpy as np
import pytest
import scipy.sparse as sp

from spatialpdvi.fitting.prepare import Initialization, Prepared
from spatialpdvi.initialization.start import start_from_labels
from spatialpdvi.problems.potts_mixture import one_hot


def _data(seed=0, n=200, d=4, k=3):
    rng = np.random.default_rng(seed)
    labels = rng.integers(k, size=n)
    return (rng.normal(size=(k, d)) * 3)[labels] + rng.normal(size=(n, d)) * [1, 2, 0.5, 1], labels


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_everything_follows_from_the_labels_by_its_formula(form):
    x, labels = _data()
    start = start_from_labels(form(x), labels, 3)
    means = np.stack([x[labels == k].mean(axis=0) for k in range(3)])
    within = sum(((x[labels == k] - means[k]) ** 2).sum(axis=0) for k in range(3)) / len(x)
    np.testing.assert_allclose(start.lam.m, means, atol=1e-12)
    np.testing.assert_allclose(start.hyperparameters.noise_sd, np.sqrt(within))
    np.testing.assert_allclose(start.hyperparameters.prior_sd, means.std(axis=0))
    np.testing.assert_allclose(start.hyperparameters.prior_mean, x.mean(axis=0), atol=1e-12)
    counts = np.bincount(labels)[:, None]
    np.testing.assert_allclose(start.lam.rho, -np.log(counts / within + 1 / means.var(axis=0)))


def test_rho_starts_at_the_variance_of_a_mean_not_of_the_data():
    x, labels = _data(n=2000)
    start = start_from_labels(x, labels, 3)
    assert (np.exp(start.lam.rho) < 0.01 * start.hyperparameters.noise_sd**2).all()


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8])
def test_features_far_from_zero_keep_their_variance(offset):
    x, labels = _data()
    near, far = start_from_labels(x, labels, 3), start_from_labels(x + offset, labels, 3)
    np.testing.assert_allclose(far.hyperparameters.noise_sd, near.hyperparameters.noise_sd, rtol=1e-5)


def test_an_empty_cluster_and_a_constant_feature_stay_finite():
    x, labels = _data()
    x[:, 2] = 7.0
    start = start_from_labels(x, labels, 5)
    np.testing.assert_allclose(start.lam.m[4], x.mean(axis=0))
    np.testing.assert_allclose(start.hyperparameters.prior_sd[:2], start.lam.m[:3, :2].std(axis=0))  # of the others
    x[:, 1:] = 7.0
    mostly = start_from_labels(x, labels, 5)
    for part in (*mostly.lam, *mostly.hyperparameters):
        assert np.isfinite(part).all()
    assert mostly.hyperparameters.noise_sd[1] == pytest.approx(1e-3 * np.sqrt(x[:, 0].var()), rel=0.2)
    for part in (*start.lam, *start.hyperparameters):
        assert np.isfinite(part).all()
    assert start.hyperparameters.noise_sd.min() > 0
    assert start.hyperparameters.prior_sd.min() > 0


def test_given_hyperparameters_are_kept_and_the_globals_follow_them():
    x, labels = _data()
    first = start_from_labels(x, labels, 3)
    other = np.roll(labels, 1)
    second = start_from_labels(x, other, 3, hyperparameters=first.hyperparameters)
    assert second.hyperparameters is first.hyperparameters
    np.testing.assert_allclose(second.lam.m, np.stack([x[other == k].mean(axis=0) for k in range(3)]))
    precision = np.bincount(other)[:, None] / first.hyperparameters.noise_sd**2 + 1 / first.hyperparameters.prior_sd**2
    np.testing.assert_allclose(second.lam.rho, -np.log(precision))


def test_starts_from_restarts_have_the_hyperparameters_of_their_consensus():
    x, labels = _data()
    restarts = tuple(np.roll(labels, by).astype(np.uint8) for by in (1, 2))
    first = start_from_labels(x, labels, 3)
    prepared = Prepared(None, Initialization(first, x, None, restarts, None), None, None, None, None)
    for own, start in zip(restarts, prepared.other_starts(), strict=True):
        assert start.hyperparameters is first.hyperparameters
        np.testing.assert_array_equal(start.labels, own)


def test_one_hot_is_sure():
    np.testing.assert_array_equal(one_hot(np.array([1, 0, 2]), 3), np.eye(3)[[1, 0, 2]])
