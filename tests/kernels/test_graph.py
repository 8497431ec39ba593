"""Nearest neighbours where many spots are at one place."""

import numpy as np
from scipy.spatial import cKDTree

from spatialpdvi.graph.neighbors import mutual_knn, order_nearest


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
