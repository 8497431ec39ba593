"""Many restarts side by side are the restarts one after the other."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import spatialpdvi
from spatialpdvi.initialization.consensus import _distinct_columns
from spatialpdvi.initialization.restarts import in_unit_range, kmeans_labels, mixture_labels, restart_labels
from spatialpdvi.options.stages import default_n_init
from spatialpdvi.runtime.threads import single_threaded


@pytest.fixture
def views():
    rng = np.random.default_rng(0)
    centres = 3.0 * rng.standard_normal((4, 6))
    x = (centres[rng.integers(4, size=500)] + rng.standard_normal((500, 6))).astype(np.float32)
    return [x, 0.5 * x + 1e6, x[:, ::-1].copy()]


@pytest.mark.parametrize("threads", [1, 3])
def test_side_by_side_is_one_by_one(views, monkeypatch, threads):
    monkeypatch.setattr("spatialpdvi.runtime.threads.n_threads", lambda: threads)
    rng = np.random.default_rng(5)
    with single_threaded():
        views = [in_unit_range(view) for view in views]
        together = restart_labels(views, 4, n_init=4, seed=5)
        alone = []
        for view in views:
            alone += [mixture_labels(view, 4, seed=int(rng.integers(2**32))) for _ in range(4)]
            alone += [kmeans_labels(view, 4, seed=int(rng.integers(2**32)), n_init=1) for _ in range(2)]
    assert len(together) == len(alone) == 18
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.usefixtures("usual_defaults")
@pytest.mark.parametrize(
    ("n", "expected"), [(2, 192), (781, 192), (1_000, 150), (3_125, 48), (5_000, 30), (25_000, 6), (10**7, 6)]
)
def test_small_sections_have_more_restarts(n, expected):
    assert default_n_init(n) == expected
    assert default_n_init(n, few=True) == 6


@pytest.mark.usefixtures("usual_defaults")
@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, 768), ({"restarts": "best"}, 24), ({"states": 8, "search": 0}, 24), ({"n_init": 4}, 18)],
)
def test_a_fit_has_as_many_restarts_as_its_options_say(toy_section, given, expected):
    options = {"rep": "X_pca", "states": "off", "max_epochs": 3, "tol": 1.0, "tol_objective": 1.0, **given}
    assert spatialpdvi.fit(toy_section.copy(), k=4, **options).params["n_restarts"] == expected


def test_a_mixture_labels_spots_as_scikit_learn_does(views):
    from sklearn.mixture import GaussianMixture

    x = in_unit_range(views[0])
    with single_threaded():
        found = mixture_labels(x, 4, seed=3)
        ridge = 1e-6 * float(x.astype(np.float64).var(axis=0).mean())
        mixture = GaussianMixture(4, covariance_type="tied", reg_covar=ridge, max_iter=200, random_state=3)
        expected = mixture.fit_predict(x.astype(np.float64))
    np.testing.assert_array_equal(found, expected)


def test_fewer_different_spots_than_clusters_leave_clusters_empty_without_a_warning():
    twice = np.repeat(np.eye(3, dtype=np.float32), 10, axis=0)
    with warnings.catch_warnings(), single_threaded():
        warnings.simplefilter("error")
        found = restart_labels([twice, twice], 5, n_init=3, seed=0)
        sparse = kmeans_labels(sp.csr_matrix(twice), 5, seed=0, n_init=1)  # by scikit-learn, which warns
    assert all(np.unique(own).size == 3 for own in (*found, sparse))


@pytest.mark.parametrize("k", [3, 300, 70_000])
def test_distinct_columns_are_those_of_numpy(k):
    said = np.random.default_rng(0).integers(0, 3, size=(5, 400)) * ((k - 1) // 2)
    rows, where, weight = _distinct_columns(said, k)
    expected = np.unique(said.T, axis=0, return_inverse=True, return_counts=True)
    np.testing.assert_array_equal(rows, expected[0])
    np.testing.assert_array_equal(where, expected[1].ravel())
    np.testing.assert_array_equal(weight, expected[2])
