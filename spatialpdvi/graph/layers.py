r"""How tissue changes around each spot, and along which direction it does not: the structure tensor of its features.

In layered tissue, features change across the layers and hardly along them. The gradient of each feature is found by
regression over the nearest spots; the products of the gradients of all features, less what noise alone adds to them,
are averaged over the neighbourhood of the spot:

    T_i = sum_f g_if g_if^T  -  s_i^2 (P_i^T P_i)^{-1}                                                         (C12)

with the positions P_i of the spot and its nearest about their mean, and the residual variance s_i^2 of all features.
The eigenvector of T with the largest eigenvalue points across the layers (structure tensor: Bigun and Granlund 1987).
"""

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from spatialpdvi.graph.neighbors import in_space, means_along_edges, nearest_spots
from spatialpdvi.kernels.graph import gradient_products
from spatialpdvi.runtime.rows import slices

__all__ = ["layer_forms"]

_NEIGHBORS = 30  # besides the spot itself, from which gradients are found
_ROUNDS = 6  # of means over the neighbours in the graph
_DOUBT = 0.3  # of what noise adds to the gradients of one spot: about what is left of it in the mean, by chance
_FLAT = 1e-6  # thickness of a section relative to its width: what rounding makes of a plane is less
_BLOCK = 50_000


def layer_forms(
    features: np.ndarray, coordinates: np.ndarray, pattern: sp.csr_matrix, *, samples: Sequence[np.ndarray]
) -> np.ndarray:
    """Return Q (n, 2, 2) or (n, 3, 3), which tells edges across layers from edges along them (C13).

    ``u^T Q u`` of a unit vector u is 1 across layers, negative along them (-1 in a plane), and about 0 in every
    direction where features change alike in all, or no more than noise does. A section whose spots lie in a plane is
    treated as one of two coordinates, wherever the plane is.

    Parameters
    ----------
    features
        x (n, d) dense, in coordinates in which the noise is 1, not averaged over neighbours.
    coordinates
        (n, 2) or (n, 3), any unit.
    pattern
        Symmetric CSR (n, n): which spots are joined.
    samples
        Spots of each section: gradients are those within it.
    """
    n, n_columns = coordinates.shape
    tensors, noise, n_axes = np.zeros((n, n_columns, n_columns)), np.zeros((n, 1)), np.full(n, n_columns)
    for spots in samples:
        own_features, axes = features[spots], _axes(coordinates[spots])
        placed, n_axes[spots] = in_space(coordinates[spots] @ axes), axes.shape[1]
        tree = cKDTree(coordinates[spots])
        for rows in slices(spots.size, _BLOCK):
            block = np.arange(rows.start, rows.stop)
            found, subtracted = np.empty((block.size, 3, 3)), np.empty(block.size)
            near = nearest_spots(tree, block, _NEIGHBORS)
            gradient_products(placed, near, block, own_features, found, subtracted)
            tensors[spots[block]] = axes @ found[:, : axes.shape[1], : axes.shape[1]] @ axes.T
            noise[spots[block], 0] = subtracted
    (averaged,) = means_along_edges(np.hstack([tensors.reshape(n, -1), noise]), pattern, (_ROUNDS,))
    forms = np.empty_like(tensors)
    for rows in slices(n, _BLOCK):
        own = averaged[rows, :-1].reshape(-1, n_columns, n_columns)
        forms[rows] = _traceless(own, _DOUBT * averaged[rows, -1], n_axes[rows, None])
    return forms


def _axes(coordinates: np.ndarray) -> np.ndarray:
    """Orthogonal axes (D, 2) of the plane in which spots lie, or all (D, D) where they lie in none."""
    n_columns = coordinates.shape[1]
    if n_columns == 2:
        return np.eye(n_columns)
    centred = coordinates - coordinates.mean(axis=0)
    squares, axes = np.linalg.eigh(centred.T @ centred)
    return axes[:, 1:] if squares[0] <= _FLAT**2 * squares[-1] else np.eye(n_columns)


def _traceless(tensors: np.ndarray, doubt: np.ndarray, n_axes: np.ndarray) -> np.ndarray:
    """``(D T - I tr T) / ((D - 1) (tr T + doubt))`` of the part of T (n, ., .) that is not negative; D (n, 1)."""
    values, vectors = np.linalg.eigh(tensors)
    values = np.maximum(values, 0.0)
    total = values.sum(axis=1, keepdims=True)
    scale = (n_axes - 1.0) * (total + doubt[:, None])
    values = np.divide(n_axes * values - total, scale, out=np.zeros_like(values), where=scale > 0)
    return np.asarray((vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1))
