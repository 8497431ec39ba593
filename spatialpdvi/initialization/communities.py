"""Communities of spots with like features: clusters that depend little on chance.

Spots are joined to their nearest others, and an edge weighs as much as its ends share neighbours (Jarvis and Patrick
1973). The communities are those of the highest modularity that Louvain's method finds (Blondel, Guillaume, Lambiotte
and Lefebvre 2008), as cell states are found in other tools of this field; only the resolution is sought, at which there
are as many as were asked for.
"""

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from spatialpdvi.runtime.rows import slices
from spatialpdvi.runtime.threads import nearest

__all__ = ["communities", "shared_neighbors"]

_BLOCK = 1 << 11  # spots whose shared neighbours are counted at a time
_NEAREST = 15  # others that a spot is joined to
_LEAST = 8  # spots: fewer are no community
_TRIES = 12  # resolutions
_SPARE = 2  # communities beyond K with which the search for a resolution ends
_GROWS = 2  # the power of the number of communities with which the resolution grows, about


def shared_neighbors(x: np.ndarray) -> sp.csr_matrix:
    """Return the graph (n, n) of nearest spots in the features x (n, d), weighed by the neighbours that ends share."""
    n = x.shape[0]
    _, near = nearest(cKDTree(x), x, min(_NEAREST + 1, n))  # a spot is the nearest to itself
    rows = np.arange(0, near.size + 1, near.shape[1])
    pattern = sp.csr_matrix((np.ones(near.size), near.ravel(), rows), shape=(n, n)) + sp.identity(n)
    joined = ((pattern + pattern.T) > 0).astype(np.float64)
    # by blocks of rows: where many spots have the same features, nearly all of them share a neighbour
    shared = sp.vstack([(joined[rows] @ joined).multiply(joined[rows]) for rows in slices(n, _BLOCK)], format="csr")
    shared.setdiag(0.0)
    shared.eliminate_zeros()
    return shared


def communities(
    graph: sp.csr_matrix, x: np.ndarray, k: int, *, seed: int, resolution: float = 1.0
) -> tuple[np.ndarray, float] | None:
    """Return K communities, (n,) in 0..K-1, and the resolution at which they were found; None if there are not as many.

    The search for the resolution ends where there are K communities or up to two more. Those beyond K are united, two
    at a time, first those whose union adds least to the variance within (Ward 1963). Spots of communities of fewer than
    eight spots join the community with the nearest mean.

    Parameters
    ----------
    graph
        Symmetric CSR (n, n), from `shared_neighbors`.
    x
        (n, d), the features.
    k
        K.
    seed
        Of the order in which Louvain's method visits the spots.
    resolution
        The first that is tried.
    """
    best: tuple[int, np.ndarray, float] | None = None
    lowest, highest = 0.0, np.inf
    for _ in range(_TRIES):
        labels = _louvain(graph, resolution, seed)
        found = int((np.bincount(labels) >= _LEAST).sum())
        if found >= k and (best is None or found < best[0]):
            best = found, labels, resolution
        if k <= found <= k + _SPARE:
            break
        if found < k:
            lowest = resolution
        else:
            highest = resolution
        guess = resolution * np.clip((k + 0.5 * _SPARE) / max(found, 1), 0.5, 2.0) ** _GROWS
        inside = lowest < guess < highest
        resolution = float(guess) if inside else float(np.sqrt(max(lowest, 0.25 * highest) * highest))
    if best is None:
        return None
    _, labels, resolution = best
    sizes = np.bincount(labels)
    number = np.where(sizes >= _LEAST, np.cumsum(sizes >= _LEAST) - 1, -1)
    labels = _united(x, number[labels], k)
    means, _ = _means(x, labels)
    loose = np.flatnonzero(labels < 0)
    labels[loose] = ((x[loose, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    return labels, resolution


def _united(x: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    """Unite clusters (n,), of which -1 is none, until there are K."""
    while labels.max() >= k:
        means, sizes = _means(x, labels)
        weights = sizes * sizes[:, None] / (sizes + sizes[:, None])
        costs = weights * ((means[:, None] - means) ** 2).sum(axis=2)
        costs[np.tril_indices(sizes.size)] = np.inf
        a, b = np.unravel_index(costs.argmin(), costs.shape)
        labels = np.where(labels == b, a, labels - (labels > b))
    return labels


def _means(x: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means (K, d) and sizes (K,) of the clusters 0..K-1."""
    return np.array([x[labels == c].mean(axis=0) for c in range(labels.max() + 1)]), np.bincount(labels[labels >= 0])


def _louvain(graph: sp.csr_matrix, resolution: float, seed: int) -> np.ndarray:
    from sknetwork.clustering import Louvain

    method = Louvain(resolution=resolution, shuffle_nodes=True, random_state=seed)
    return np.asarray(method.fit_predict(graph), dtype=np.int64)
