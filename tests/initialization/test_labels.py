"""Labels by k-means and by a mixture with one covariance."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from spatialpdvi.initialization import restarts as module
from spatialpdvi.initialization.clustering import fit_mixture
from spatialpdvi.initialization.restarts import in_unit_range, kmeans_labels, mixture_labels
from spatialpdvi.kernels.clustering import move_centres
from spatialpdvi.runtime.threads import single_threaded


def _long_clusters(n=600, seed=0):
    """Three clusters side by side, all longer than they are apart."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    return np.column_stack([truth + 0.12 * rng.normal(size=n), 1.2 * rng.normal(size=n)]), truth


@pytest.mark.parametrize("method", [kmeans_labels, mixture_labels])
def test_seeded(method):
    x, _ = _long_clusters()
    with single_threaded():
        a, b = method(x, 3, seed=5), method(x, 3, seed=5)
    np.testing.assert_array_equal(a, b)
    assert a.dtype == np.int64
    assert set(a) == {0, 1, 2}


def test_a_common_covariance_finds_long_clusters_that_kmeans_cuts_across():
    x, truth = _long_clusters()
    with single_threaded():
        by_mixture = max(adjusted_rand_score(truth, mixture_labels(x, 3, seed=s)) for s in range(20))
        by_kmeans = max(adjusted_rand_score(truth, kmeans_labels(x, 3, seed=s, n_init=10)) for s in range(20))
    assert by_mixture > 0.9
    assert by_kmeans < 0.6


@pytest.mark.parametrize("unit", [1e-5, 1e5])
def test_the_labels_of_a_mixture_do_not_depend_on_the_unit(unit):
    x, _ = _long_clusters()
    with single_threaded():
        np.testing.assert_array_equal(mixture_labels(unit * x, 3, seed=2), mixture_labels(x, 3, seed=2))


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_features_are_scaled_by_how_far_they_lie_from_their_mean(offset):
    scaled = in_unit_range(_long_clusters()[0] + offset)
    assert np.abs(scaled).max() == 1.0
    np.testing.assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-6)


def test_a_mixture_of_spots_that_are_all_alike_or_fewer_than_clusters():
    with single_threaded():
        assert set(mixture_labels(np.ones((20, 2)), 3, seed=0)) <= {0, 1, 2}
        assert mixture_labels(np.repeat(np.eye(3), 5, axis=0), 3, seed=0).shape == (15,)


@pytest.mark.parametrize("method", [kmeans_labels, mixture_labels])
def test_many_spots_are_labelled_by_what_some_of_them_taught(method, monkeypatch):
    x, truth = _long_clusters()
    x[:, 1] /= 12.0
    monkeypatch.setattr(module, "LEARNT_FROM", 150)
    with single_threaded():
        found = method(x, 3, seed=0)
    assert found.shape == truth.shape
    assert adjusted_rand_score(truth, found) > 0.95


@pytest.mark.parametrize("n_init", [1, 4])
@pytest.mark.parametrize("k", [2, 9])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_kmeans_labels_spots_as_scikit_learn_does(n_init, k, shift):
    rng = np.random.default_rng(0)
    x = shift + 3.0 * rng.normal(size=(6, 5))[rng.integers(6, size=700)] + rng.normal(size=(700, 5))
    with single_threaded():
        found = kmeans_labels(x, k, seed=4, n_init=n_init)
        expected = KMeans(k, n_init=n_init, random_state=4).fit_predict(x)
    np.testing.assert_array_equal(found, expected)


def test_a_mixture_is_that_of_scikit_learn():
    x = np.random.default_rng(0).normal(size=(500, 4)) @ np.random.default_rng(1).normal(size=(4, 4)) + 5.0
    with single_threaded():
        found = fit_mixture(x, 6, seed=2, ridge=1e-3)
        expected = GaussianMixture(6, covariance_type="tied", reg_covar=1e-3, max_iter=200, random_state=2).fit(x)
    np.testing.assert_allclose(found.weights, expected.weights_, rtol=1e-8)
    np.testing.assert_allclose(found.means, expected.means_, rtol=1e-8)
    np.testing.assert_allclose(found.covariance, expected.covariances_, rtol=1e-8)
    np.testing.assert_allclose(found.posterior(x), expected.predict_proba(x), atol=1e-8)
    np.testing.assert_array_equal(found.labels(x), expected.predict(x))


def test_a_centre_that_loses_its_spots_moves_to_the_farthest_one():
    x = np.array([[0.0], [0.1], [0.2], [8.0], [9.0]])
    labels, centres = np.empty(5, dtype=np.int64), np.array([[0.1], [9.0], [50.0]])
    move_centres(x, 1, 0.0, centres, labels)
    np.testing.assert_allclose(centres, [[0.1], [9.0], [8.0]])
    np.testing.assert_array_equal(labels, [0, 0, 0, 2, 1])


def test_centres_beyond_the_number_of_different_spots_stay():
    x = np.repeat([[0.0], [1.0]], 3, axis=0)
    labels, centres = np.empty(6, dtype=np.int64), np.array([[0.0], [1.0], [7.0]])
    move_centres(x, 5, 0.0, centres, labels)
    np.testing.assert_array_equal(centres, [[0.0], [1.0], [7.0]])


def test_sparse_features_are_clustered_too():
    with single_threaded():
        found = kmeans_labels(sp.csr_matrix(np.repeat(3.0 * np.eye(3), 20, axis=0)), 3, seed=0, n_init=10)
    assert found.dtype == np.int64
    assert adjusted_rand_score(np.repeat(range(3), 20), found) == 1.0
