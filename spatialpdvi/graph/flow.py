"""Directions along domain borders, from the start labels around each spot (docs/math.md)."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from scipy.spatial import cKDTree

from spatialpdvi.graph.neighbors import in_space, median_spacing, nearest_spots
from spatialpdvi.kernels.graph import border_normals
from spatialpdvi.runtime.rows import slices

__all__ = ["Borders", "border_directions", "flow_directions"]

MIN_SIDE = 5  # spots that either side of a border must have around a spot for its direction to be meaningful
_BLOCK = 50_000  # spots queried at a time: bounds the neighbour lists to some 40 MB


class Borders:
    """The borders between the start labels of sections, whose directions are found when they are first asked for.

    They follow from the nearest hundred spots of each, which takes long on large sections, and edges of compositions do
    not depend on them.

    Parameters
    ----------
    coordinates
        (n, 2) or (n, 3), any unit.
    labels
        (n,) of the start.
    samples
        Spots of each section: borders are those within it.
    n_neighbors
        Spots around each spot, itself included.
    """

    def __init__(
        self, coordinates: np.ndarray, labels: np.ndarray, samples: Sequence[np.ndarray], n_neighbors: int
    ) -> None:
        self._coordinates, self._labels, self._samples = coordinates, labels, samples
        self._n_neighbors = n_neighbors

    @cached_property
    def normals(self) -> np.ndarray:
        """Unit normals (n, 3), 0 where undefined."""
        normals = np.empty((self._labels.size, 3))
        for spots in self._samples:
            normals[spots] = border_directions(self._coordinates[spots], self._labels[spots], self._n_neighbors)
        return normals

    def directions(self) -> np.ndarray:
        """Return the flow directions (n, 2), or border normals (n, 3) of a 3-D section."""
        return flow_directions(self.normals, self._coordinates.shape[1])


def border_directions(coordinates: np.ndarray, labels: np.ndarray, n_neighbors: int) -> np.ndarray:
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
    placed, tree = in_space(coordinates), cKDTree(coordinates)
    for rows in slices(n, _BLOCK):
        own = np.arange(rows.start, rows.stop)
        index = nearest_spots(tree, own, n_neighbors - 1)
        around = np.concatenate([own[:, None], index], axis=1)
        block = np.empty((own.size, 3))
        border_normals(placed, around, labels, labels[own], own, spacing**2, float(MIN_SIDE), block)
        normals[own] = block
    return normals


def flow_directions(normals: np.ndarray, n_dimensions: int) -> np.ndarray:
    """Return the directions g that are written: normals turned by 90 degrees (n, 2); in 3-D the normals (n, 3).

    In 3-D the border is a surface, and no single direction runs along it.
    """
    if n_dimensions == 3:
        return normals
    return np.stack([-normals[:, 1], normals[:, 0]], axis=1)
