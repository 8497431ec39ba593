"""Nearest spots in space and the mutual k-nearest-neighbour graph."""

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

__all__ = ["median_spacing", "mutual_knn", "nearest_spots"]


def nearest_spots(tree: cKDTree, spots: np.ndarray, n_neighbors: int) -> tuple[np.ndarray, np.ndarray]:
    """Distances and numbers (b, q) of the ``n_neighbors`` spots nearest to each of ``spots``, itself left out.

    q is ``n_neighbors``, or one less than there are spots where that is smaller. The tree is asked with all
    cores; its answer does not depend on how many there are.
    """
    q = min(n_neighbors, tree.n - 1)
    if q < 1:
        empty = np.empty((spots.size, 0))
        return empty, empty.astype(np.int64)
    distance, index = tree.query(tree.data[spots], k=q + 1, workers=-1)
    # a spot is not always its own first neighbour: others may share its place, even push it out of the list
    itself = index == spots[:, None]
    itself[~itself.any(axis=1), -1] = True
    shape = (spots.size, q)
    return distance[~itself].reshape(shape), index[~itself].reshape(shape).astype(np.int64)


def mutual_knn(coordinates: np.ndarray, n_neighbors: int) -> sp.csr_matrix:
    """Symmetric pattern (n, n) of ones: i and j are joined where each is among the other's nearest spots.

    Parameters
    ----------
    coordinates
        (n, 2) or (n, 3), any unit.
    n_neighbors
        k; at the most n - 1 are used.
    """
    n = coordinates.shape[0]
    _, index = nearest_spots(cKDTree(coordinates), np.arange(n), n_neighbors)
    rows = np.repeat(np.arange(n), index.shape[1])
    directed = sp.csr_matrix((np.ones(rows.size), (rows, index.ravel())), shape=(n, n))
    mutual = directed.multiply(directed.T).tocsr()
    mutual.sort_indices()
    return mutual


def median_spacing(coordinates: np.ndarray) -> float:
    """Median distance to the nearest spot at another place, in units of the coordinates; 0 if there is none."""
    n = coordinates.shape[0]
    places = np.unique(coordinates, axis=0)
    if places.shape[0] < 2 or n < 2:
        return 0.0
    distance, _ = cKDTree(places).query(places, k=2, workers=-1)
    return float(np.median(distance[:, 1]))
