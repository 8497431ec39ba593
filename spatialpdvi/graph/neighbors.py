"""Nearest spots in space, the mutual k-nearest-neighbour graph, and what is made of coordinates and edges."""

from collections.abc import Iterator, Sequence

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from spatialpdvi.kernels.graph import means_over_neighbours, order_neighbours
from spatialpdvi.runtime.rows import slices
from spatialpdvi.runtime.threads import in_blocks, nearest

__all__ = [
    "along_longest_side",
    "between_groups",
    "in_space",
    "means_along_edges",
    "median_spacing",
    "mutual_knn",
    "nearest_spots",
    "only_edges",
    "order_nearest",
]

_SAME = 1e9  # steps in the k-th distance: distances that agree to one step are ties
_AT_A_TIME = 1 << 13  # spots of which a thread searches the neighbours at a time
_SPARE = 16  # spots queried beyond the k-th, to find its ties: on lattices there are at most 12


def nearest_spots(tree: cKDTree, spots: np.ndarray, n_neighbors: int) -> np.ndarray:
    """Return the numbers (b, q) of the ``n_neighbors`` spots nearest to each of ``spots`` (b,), itself left out.

    q is ``n_neighbors``, or one less than the number of spots where that is smaller. Ties, which are common on
    lattices, are broken by the spot's number and not by rounding, so that pixels and microns give the same neighbours;
    of more than 16 that tie with the last one, which of them are found is up to the tree.
    The query uses all cores; its answer does not depend on their number.
    """
    _, index = order_nearest(tree, spots, n_neighbors)
    return index[:, : min(n_neighbors, tree.n - 1)]


def mutual_knn(coordinates: np.ndarray, n_neighbors: int) -> sp.csr_matrix:
    """Return a symmetric pattern (n, n) of ones: i and j are joined where each is among the other's nearest spots.

    Spots that tie with the k-th nearest, up to 16 of them, are all among the nearest: on a square lattice k = 10
    joins 12, three full shells, whatever the rounding of the coordinates.

    Parameters
    ----------
    coordinates
        (n, 2) or (n, 3), any unit.
    n_neighbors
        k; at most n - 1 are used.
    """
    n = coordinates.shape[0]
    k = min(n_neighbors, n - 1)
    if k < 1:
        return sp.csr_matrix((n, n))
    tree, kind = cKDTree(coordinates), np.int32 if n <= np.iinfo(np.int32).max else np.int64
    nearest, n_nearest = [], [np.zeros(1, dtype=np.int64)]
    for rows in slices(n):
        distance, index = order_nearest(tree, np.arange(rows.start, rows.stop), k)
        near = distance <= distance[:, k - 1 : k]
        nearest.append(index[near].astype(kind))
        n_nearest.append(near.sum(axis=1))
    columns = np.concatenate(nearest)
    nearest.clear()
    # products of ones: a byte is enough until the pattern is known
    pattern = (np.ones(columns.size, dtype=np.int8), columns, np.cumsum(np.concatenate(n_nearest)))
    directed = sp.csr_matrix(pattern, shape=(n, n))
    mutual = directed.multiply(directed.T).tocsr()
    mutual.sort_indices()
    return mutual.astype(np.float64)


def order_nearest(
    tree: cKDTree, spots: np.ndarray, n_neighbors: int, *, spare: int = _SPARE
) -> tuple[np.ndarray, np.ndarray]:
    """Find the nearest spots of each spot, itself left out, in the order of distance and, for ties, of row number.

    Parameters
    ----------
    tree
        Tree of the coordinates of all spots.
    spots
        Row numbers (b,) of the spots whose neighbours are wanted.
    n_neighbors
        k; distances that differ by less than 1e-9 of the k-th distance tie. Of more ties than ``spare``, any are found.
    spare
        Number of spots beyond the k-th that are searched for ties.

    Returns
    -------
    rank, near
        Distances in steps of 1e-9 of the k-th one, and row numbers, both (b, q) with q at most ``n_neighbors + spare``.
    """
    q = min(n_neighbors + spare, tree.n - 1)
    if q < 1:
        empty = np.empty((spots.size, 0))
        return empty, empty.astype(np.int64)
    rank, near = np.empty((spots.size, q)), np.empty((spots.size, q), dtype=np.int64)

    def search(rows: slice) -> None:
        distance, index = tree.query(tree.data[spots[rows]], k=q + 1)
        # relative to the n_neighbors-th distance: the same for any unit of the coordinates
        order_neighbours.serial(distance, index, spots[rows], n_neighbors, _SAME, rank[rows], near[rows])

    in_blocks(search, spots.size, _AT_A_TIME)
    return rank, near


def means_along_edges(values: np.ndarray, pattern: sp.csr_matrix, rounds: Sequence[int]) -> Iterator[np.ndarray]:
    """Yield means (n, p) over the neighbourhood of each spot, by rounds of means over the spot and its neighbours.

    Where spots are joined to about ten others, six rounds reach as far as the 60 nearest spots, in a fraction of the
    time that it takes to find these; and they stay within a section, as the edges do.

    Parameters
    ----------
    values
        (n, p) float; means have their type.
    pattern
        Symmetric CSR (n, n): which spots are joined, whatever the weights.
    rounds
        Numbers of rounds, ascending, after each of which the means are yielded. They are overwritten when the next are
        asked for.
    """
    spare, done = [np.empty_like(values), np.empty_like(values)], 0
    for wanted in rounds:
        while done < wanted:
            means = spare.pop(0)
            means_over_neighbours(values, pattern.indptr, pattern.indices, means)
            if done:
                spare.append(values)
            values, done = means, done + 1
        yield values


def between_groups(graph: sp.csr_matrix, codes: np.ndarray) -> np.ndarray:
    """Return whether each stored edge of a graph (n, n), in its order, joins spots of two groups, from codes (n,)."""
    return np.asarray(np.repeat(codes, np.diff(graph.indptr)) != codes[graph.indices])


def only_edges(graph: sp.csr_matrix, chosen: np.ndarray) -> sp.csr_matrix:
    """Return a graph (n, n) with those of its stored edges alone that are chosen, bool in their order."""
    indptr = np.append(0, np.cumsum(chosen))[graph.indptr]
    kept = sp.csr_matrix((graph.data[chosen], graph.indices[chosen], indptr), shape=graph.shape)
    kept.sum_duplicates()  # which sorts too: a graph that users give may be neither
    return kept


def in_space(coordinates: np.ndarray) -> np.ndarray:
    """Return coordinates (n, 1), (n, 2) or (n, 3) as (n, 3) float64, with zeros where there were none."""
    placed = np.zeros((coordinates.shape[0], 3))
    placed[:, : coordinates.shape[1]] = coordinates
    return placed


def along_longest_side(coordinates: np.ndarray, spots: np.ndarray) -> np.ndarray:
    """Return spots (m,) in the order of their places along the longest side of the box around them."""
    own = coordinates[spots]
    return np.asarray(spots[np.argsort(own[:, np.ptp(own, axis=0).argmax()], kind="stable")])


def median_spacing(coordinates: np.ndarray) -> float:
    """Return the median distance to the nearest spot at another place, in the coordinates' unit; 0 if there is none."""
    places = np.unique(coordinates, axis=0)
    if places.shape[0] < 2:
        return 0.0
    distance, _ = nearest(cKDTree(places), places, 2)
    return float(np.median(distance[:, 1]))
