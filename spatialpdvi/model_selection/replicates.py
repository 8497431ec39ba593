"""Two looks at one tissue that share no noise: through one half of the spots or genes, and through the other."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from spatialpdvi.features.projection import principal_components
from spatialpdvi.features.scaling import is_constant
from spatialpdvi.graph.neighbors import nearest_spots

__all__ = ["Halves", "gene_halves", "spot_halves"]

_BLOCK = 50_000
_FEWEST_GENES = 4  # two a half, which a component needs
_SPARE = 16  # spots asked for beyond three times as many as are wanted: one in 10^5 and more finds none of a half


class Halves(NamedTuple):
    """Features (n, p) of every spot, seen through one half and through the other."""

    first: np.ndarray
    second: np.ndarray


def spot_halves(
    features: np.ndarray, coordinates: np.ndarray, n_neighbors: int, *, samples: Sequence[np.ndarray], seed: int
) -> Halves:
    """Averages over the nearest spots of either half of a random split; all spots have both.

    What is a spot's own, noise above all, is in one of the two only. The mean over n_neighbors + 1 spots becomes one
    over half as many of either half, the spot itself among those of its own.

    Parameters
    ----------
    features
        (n, p), not averaged.
    coordinates
        (n, 2) or (n, 3), any unit; ties are broken by the spot's number.
    n_neighbors
        Neighbours that a fit averages over; twice as many make either half's average as precise as the fit's.
    samples
        Spots that can be neighbours, as a rule those of each section; each is split by itself.
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
    """Principal components of either half of the genes, not averaged; None where a half has too few that vary.

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
    for begin in range(0, spots.size, _BLOCK):
        asked = np.arange(begin, min(begin + _BLOCK, spots.size))
        near = np.column_stack([asked, nearest_spots(tree, asked, n_neighbors)])
        yield spots[asked], spots[near]


def _mean_of_half(features: np.ndarray, near: np.ndarray, of_half: np.ndarray, wanted: int) -> np.ndarray:
    """Mean (b, p) over the first ``wanted`` of ``near`` (b, q) that are of the half; over all where none is."""
    taken = of_half[near]
    taken &= np.cumsum(taken, axis=1) <= wanted
    taken[~taken.any(axis=1)] = True
    total = np.zeros((near.shape[0], features.shape[1]))
    for column in range(near.shape[1]):
        own = taken[:, column]
        total[own] += features[near[own, column]]
    return np.asarray(total / taken.sum(axis=1, keepdims=True))
