"""Nearest neighbours where many spots are at one place, and gradients of features around a spot."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

from spatialpdvi.graph.neighbors import means_along_edges, mutual_knn, order_nearest
from spatialpdvi.kernels.graph import gradient_products, means_over_neighbours, quadratic_form


def test_spots_at_the_same_place_come_before_all_others():
    others = np.arange(1.0, 6.0)[:, None] * [1.0, 0.0]
    coordinates = np.vstack([others, np.zeros((12, 2))])  # twelve spots at the origin, in later rows
    _, near = order_nearest(cKDTree(coordinates), np.array([7]), 10)
    assert near[0, :11].tolist() == [5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16]
    joined = mutual_knn(coordinates, 10).toarray()
    np.testing.assert_array_equal(joined[5:, 5:], 1.0 - np.eye(12))
    assert not joined[:5, 5:].any()


def test_ties_go_to_the_earlier_row_in_any_unit():
    lattice = np.indices((9, 9)).reshape(2, -1).T.astype(float)
    centre = 40
    squared = ((lattice - lattice[centre]) ** 2).sum(axis=1)
    expected = np.lexsort([np.arange(81), squared])[1:13]
    for unit in (1.0, 0.715, 1e-3, 1e5 / 3):
        _, near = order_nearest(cKDTree(unit * lattice + 1000.3 * unit), np.array([centre]), 12)
        np.testing.assert_array_equal(near[0, :12], expected)


def _padded(coordinates):
    padded = np.zeros((len(coordinates), 3))
    padded[:, : coordinates.shape[1]] = coordinates
    return padded


@pytest.mark.parametrize("n_axes", [2, 3])
def test_products_of_gradients_are_those_of_least_squares(n_axes):
    rng = np.random.default_rng(n_axes)
    coordinates = 50.0 + rng.normal(size=(40, n_axes))
    x = rng.normal(size=(40, 5)).astype(np.float32)
    neighbours = np.array([rng.permutation(np.delete(np.arange(40), i))[:12] for i in range(40)])
    found, subtracted = np.empty((40, 3, 3)), np.empty(40)
    gradient_products(_padded(coordinates), neighbours, np.arange(40), x, found, subtracted)
    for i in range(40):
        rows = [i, *neighbours[i]]
        design = np.column_stack([np.ones(13), coordinates[rows]])
        slopes, residual, *_ = np.linalg.lstsq(design, x[rows].astype(float), rcond=None)
        noise = residual.sum() / (13 - 1 - n_axes) * np.linalg.inv(design.T @ design)[1:, 1:]
        np.testing.assert_allclose(found[i, :n_axes, :n_axes], slopes[1:] @ slopes[1:].T - noise, rtol=1e-7, atol=1e-9)
        assert subtracted[i] == pytest.approx(np.trace(noise))


def test_there_is_no_gradient_where_spots_lie_on_a_line_or_at_one_place_or_are_too_few():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 3))
    neighbours = np.array([np.delete(np.arange(20), i)[:8] for i in range(20)])
    line = rng.normal(size=(20, 1)) * [1.0, 0.3]
    for coordinates, near in (
        (line, neighbours),
        (np.ones((20, 2)), neighbours),
        (rng.random((20, 2)), neighbours[:, :2]),
    ):
        found, subtracted = np.full((20, 3, 3), np.nan), np.full(20, np.nan)
        gradient_products(_padded(coordinates), near, np.arange(20), x, found, subtracted)
        np.testing.assert_array_equal(found, 0.0)
        np.testing.assert_array_equal(subtracted, 0.0)


def test_the_form_of_an_edge_is_the_mean_of_those_at_its_ends():
    rng = np.random.default_rng(1)
    coordinates = rng.normal(size=(6, 2))
    coordinates[5] = coordinates[4]
    forms = rng.normal(size=(6, 2, 2))
    forms = forms + forms.transpose(0, 2, 1)
    rows, cols = np.array([0, 3, 4]), np.array([2, 1, 5])
    there, back = np.empty(3), np.empty(3)
    quadratic_form(coordinates, forms, rows, cols, there)
    quadratic_form(coordinates, forms, cols, rows, back)
    np.testing.assert_array_equal(there, back)
    unit = coordinates[2] - coordinates[0]
    unit /= np.linalg.norm(unit)
    assert there[0] == pytest.approx(unit @ (forms[0] + forms[2]) @ unit / 2)
    assert there[2] == 0.0  # two spots at one place


def _random_walk(pattern):
    """The matrix that averages each spot and its neighbours."""
    joined = (pattern.toarray() != 0) + np.eye(pattern.shape[0])
    return joined / joined.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_means_along_edges_are_rounds_of_means_whatever_the_weights(dtype):
    rng = np.random.default_rng(1)
    pattern = mutual_knn(rng.normal(size=(60, 2)), 5)
    pattern.data *= rng.uniform(0.0, 3.0, size=pattern.nnz)
    values = rng.normal(size=(60, 3)).astype(dtype)
    given, walk = values.copy(), _random_walk(pattern)
    found = [(means.dtype, means.copy()) for means in means_along_edges(values, pattern, (0, 1, 2, 5))]
    np.testing.assert_array_equal(values, given)
    for (kind, means), rounds in zip(found, (0, 1, 2, 5), strict=True):
        assert kind == dtype
        expected = np.linalg.matrix_power(walk, rounds) @ given
        np.testing.assert_allclose(means, expected, rtol=1e-4, atol=1e-6 if dtype == np.float32 else 1e-14)


def test_means_over_neighbours_have_the_same_bits_from_both_versions():
    rng = np.random.default_rng(2)
    pattern, values = mutual_knn(rng.normal(size=(300, 2)), 8), rng.normal(size=(300, 7))
    serial, parallel = np.empty_like(values), np.empty_like(values)
    means_over_neighbours.serial(values, pattern.indptr, pattern.indices, serial)
    means_over_neighbours.parallel(values, pattern.indptr, pattern.indices, parallel)
    np.testing.assert_array_equal(serial, parallel)
