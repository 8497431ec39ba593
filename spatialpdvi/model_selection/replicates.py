"""Features of one tissue from two halves of its spots or genes, which share no noise."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from spatialpdvi.features.projection import principal_components
from spatialpdvi.features.scaling import is_constant
from spatialpdvi.graph.neighbors import nearest_spots
from spatialpdvi.runtime.rows import slices

__all__ = ["Halves", "gene_halves", "spot_halves"]

_BLOCK = 50_000
_FEWEST_GENES = 4  # two a half, which a component needs
_SPARE = 16  # spots queried beyond three times the number wanted: fewer than one in 10^5 finds none of a half


class Halves(NamedTuple):
    """Features (n, p) of every spot, from one half and from the other."""

    first: np.ndarray
    second: np.ndarray


def spot_halves(
    features: np.ndarray, coordinates: np.ndarray, n_neighbors: int, *, samples: Sequence[np.ndarray], seed: int
) -> Halves:
    """Return averages over the nearest spots of either half of a random split; every spot has both.

    The noise of a spot enters only one of the two. The mean over n_neighbors + 1 spots becomes one over half as many
    spots of either half; a spot is among those of its own half.

    Parameters
    ----------
    features
        (n, p), not averaged.
    coordinates
        (n, 2) or (n, 3), any unit; ties are broken by the spot's number.
    n_neighbors
        Neighbours that a fit averages over; twice as many make the average of a half as precise as that of the fit.
    samples
        Spots that can be neighbours, usually those of each section; each sample is split separately.
    seed
        Of the split.
    """
    rng = np.random.default_rng(seed)
    wanted = n_neighbors // 2 + 1
    first = np.empty(features.shape[0], dtype=bool)
    halves = Halves(np.empty_like(features), np.empty_like(features))
    for spots in samples:
        first[spots] = rng.permutation(spots.size) < spots.size // 2
        for own, near in _nearest(spots, coordinates, 3 * wanted + _SPARE):
            for half, side in zip(halves, (True, False), strict=True):
                half[own] = _mean_of_half(features, near, first == side, wanted)
    return halves


def gene_halves(scaled: np.ndarray | sp.csr_matrix, n_components: int, *, seed: int) -> Halves | None:
    """Return principal components of either half of the genes, not averaged; None where too few genes vary.

    Parameters
    ----------
    scaled
        (n, genes) as for a fit's components.
    n_components
        Of each half; fewer where it has fewer genes.
    seed
        Of the split.
    """
    varying = np.flatnonzero(~is_constant(scaled))
    if varying.size < _FEWEST_GENES:
        return None
    mixed = np.random.default_rng(seed).permutation(varying)
    columns = (np.sort(mixed[::2]), np.sort(mixed[1::2]))
    return Halves(*(principal_components(scaled[:, own], n_components, seed=seed).scores for own in columns))


def _nearest(spots: np.ndarray, coordinates: np.ndarray, n_neighbors: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of spots (b,) of one section, and of the numbers (b, q) of each and its nearest others."""
    tree = cKDTree(coordinates[spots])
    for rows in slices(spots.size, _BLOCK):
        block = np.arange(rows.start, rows.stop)
        near = np.column_stack([block, nearest_spots(tree, block, n_neighbors)])
        yield spots[block], spots[near]


def _mean_of_half(features: np.ndarray, near: np.ndarray, of_half: np.ndarray, wanted: int) -> np.ndarray:
    """Mean (b, p) over the first ``wanted`` of ``near`` (b, q) in the half; over all where none is in it."""
    taken = of_half[near]
    taken &= np.cumsum(taken, axis=1) <= wanted
    taken[~taken.any(axis=1)] = True
    total = np.zeros((near.shape[0], features.shape[1]))
    for column in range(near.shape[1]):
        own = taken[:, column]
        total[own] += features[near[own, column]]
    return np.asarray(total / taken.sum(axis=1, keepdims=True))
