"""Features averaged over neighbours in space, and how many neighbours the data themselves ask for."""

from collections.abc import Sequence

import numpy as np
from scipy.spatial import cKDTree

from spatialpdvi.graph.neighbors import nearest_spots

__all__ = ["CANDIDATES", "neighbor_averages", "predictive_neighbors"]

CANDIDATES = (4, 6, 8, 12, 18, 25, 30, 40, 50, 60, 80, 100)  # neighbours
_NEAR_BEST = 0.005  # of the least error: within it the fewest neighbours are taken
_ASKED = 20_000  # spots that the error is estimated on, at the most
_BLOCK = 50_000


def neighbor_averages(
    features: np.ndarray, coordinates: np.ndarray, counts: Sequence[int], *, samples: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Means (n, d) of the features over each spot and its nearest others, one for each of ``counts``; in their type.

    Parameters
    ----------
    features
        (n, d).
    coordinates
        (n, 2) or (n, 3), any unit; ties are broken by the spot's number (`nearest_spots`).
    counts
        Numbers of neighbours; 0 leaves the features as they are. Beyond n - 1 all spots are averaged.
    samples
        Spots of each section: neighbours are of the same one.
    """
    means = [np.empty_like(features) for _ in counts]
    for spots in samples:
        tree = cKDTree(coordinates[spots])
        for first in range(0, spots.size, _BLOCK):
            asked = np.arange(first, min(first + _BLOCK, spots.size))
            own = spots[asked]
            index = spots[nearest_spots(tree, asked, max(counts))] if max(counts) else own[:, None][:, :0]
            total = features[own].astype(np.float64)
            for taken in range(index.shape[1] + 1):
                if taken:
                    total += features[index[:, taken - 1]]
                for mean, count in zip(means, counts, strict=True):
                    if min(count, index.shape[1]) == taken:
                        mean[own] = total / (taken + 1)
    return means


def predictive_neighbors(
    features: np.ndarray, coordinates: np.ndarray, *, samples: Sequence[np.ndarray], most: int, seed: int
) -> int:
    """Number of nearest spots whose mean predicts a spot's own features best: the data's own scale.

    The spot itself is left out (leave-one-out cross-validation of a nearest-neighbour regression). Few neighbours
    leave their noise in the mean, many reach into other tissue; where noise and tissue balance is a matter of
    technology and spacing, and no label is needed to see it. Of numbers whose error is within half a per cent of the
    least the smallest is taken, since averages blur borders.

    Parameters
    ----------
    features
        (n, d) float, weighted as they come: components of a PCA by their variance.
    coordinates
        (n, 2) or (n, 3), any unit.
    samples
        Spots of each section: neighbours are of the same one, and the errors of all are added up.
    most
        Largest number considered.
    seed
        Of the spots that are asked, where there are more than 20,000.
    """
    n = features.shape[0]
    candidates = [count for count in CANDIDATES if count <= min(most, *(spots.size - 1 for spots in samples))]
    if not candidates:
        return 0
    rng = np.random.default_rng(seed)
    errors = dict.fromkeys(candidates, 0.0)
    for spots in samples:
        asked = np.arange(spots.size)
        if n > _ASKED:
            asked = np.sort(rng.choice(spots.size, -(-_ASKED * spots.size // n), replace=False))
        index = spots[nearest_spots(cKDTree(coordinates[spots]), asked, candidates[-1])]
        own = features[spots[asked]].astype(np.float64)
        total = np.zeros_like(own)
        for column in range(candidates[-1]):
            total += features[index[:, column]]
            if column + 1 in errors:
                errors[column + 1] += float(((own - total / (column + 1)) ** 2).sum())
    enough = (1.0 + _NEAR_BEST) * min(errors.values())
    return next(count for count in candidates if errors[count] <= enough)
