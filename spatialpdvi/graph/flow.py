"""Directions along domain borders, from the start labels around each spot (docs/math.md)."""

import numpy as np
from scipy.spatial import cKDTree

from spatialpdvi.graph.neighbors import median_spacing, nearest_spots
from spatialpdvi.kernels.graph import border_normals

__all__ = ["MIN_SIDE", "border_directions", "flow_directions"]

MIN_SIDE = 5  # spots that either side of a border must have around a spot for its direction to be meaningful
_BLOCK = 50_000  # spots queried at a time: bounds the neighbour lists to some 40 MB


def border_directions(coordinates: np.ndarray, labels: np.ndarray, n_neighbors: int = 100) -> np.ndarray:
    """Return unit normals (n, 3) of the borders between start labels, 0 where undefined.

    They are Fisher's discriminant directions between spots of the same label and of other labels, among the spot
    itself and its nearest ones. The ridge is the squared median spacing, so that pixels and microns give the same
    directions.

    Parameters
    ----------
    coordinates
        (n, 2) or (n, 3), any unit; in the plane the third component of normals is 0.
    labels
        (n,) of the start.
    n_neighbors
        Spots around each spot, itself included.
    """
    n = coordinates.shape[0]
    normals = np.zeros((n, 3))
    spacing = median_spacing(coordinates)
    if spacing == 0.0:
        return normals
    padded = np.zeros((n, 3))
    padded[:, : coordinates.shape[1]] = coordinates
    tree = cKDTree(coordinates)
    for start in range(0, n, _BLOCK):
        own = np.arange(start, min(start + _BLOCK, n))
        index = nearest_spots(tree, own, n_neighbors - 1)
        around = np.concatenate([own[:, None], index], axis=1)
        block = np.empty((own.size, 3))
        border_normals(padded, around, labels, labels[own], own, spacing**2, float(MIN_SIDE), block)
        normals[own] = block
    return normals


def flow_directions(normals: np.ndarray, n_dimensions: int) -> np.ndarray:
    """Return the directions g that are written: normals turned by 90 degrees (n, 2); in 3-D the normals (n, 3).

    In 3-D the border is a surface, and no single direction runs along it.
    """
    if n_dimensions == 3:
        return normals
    return np.stack([-normals[:, 1], normals[:, 0]], axis=1)
