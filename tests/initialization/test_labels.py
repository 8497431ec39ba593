"""Labels by k-means and by a mixture with one covariance."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from spatialpdvi.initialization import kmeans_labels, mixture_labels
from spatialpdvi.initialization import restarts as module
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
        by_kmeans = max(adjusted_rand_score(truth, kmeans_labels(x, 3, seed=s)) for s in range(20))
    assert by_mixture > 0.9
    assert by_kmeans < 0.6


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
