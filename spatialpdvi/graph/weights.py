"""Edge weights, times the Potts strength beta.

``r_ij = (|g_i.u| + |g_j.u|) / 2 + tau (cos(x_i, x_j) + 1)`` where each domain has one mean (`weigh_edges`), and
``r_ij = r (1 - kappa u' (Q_i + Q_j) u / 2)`` where domains are compositions of states (`weigh_by_layers`).
"""

import numpy as np
import scipy.sparse as sp

from spatialpdvi.graph.neighbors import in_space
from spatialpdvi.kernels.graph import cosine_csr, cosine_dense, flow_term, quadratic_form

__all__ = ["scale_weights", "weigh_by_layers", "weigh_edges"]

_TOTAL = 7.0  # weight of all edges of a spot, on average, at beta 1 (docs/lab_notebook.md)


def weigh_edges(
    pattern: sp.csr_matrix,
    coordinates: np.ndarray,
    normals: np.ndarray,
    *,
    features: np.ndarray | sp.csr_matrix,
    tau: float,
    beta: float,
) -> sp.csr_matrix:
    """Return a symmetric CSR (n, n) of ``beta * r_ij``, each undirected edge stored twice with the same bits.

    Parameters
    ----------
    pattern
        Symmetric, no diagonal; its values multiply the weights (1 for a k-nearest-neighbour graph).
    coordinates
        (n, 2) or (n, 3).
    normals
        Border normals (n, 3), `border_directions`.
    features
        x (n, d), dense or CSR.
    tau
        Weight of the feature similarity, >= 0.
    beta
        Potts strength, >= 0.

    Notes
    -----
    A zero vector (no direction, no expression, two spots at one place) makes its term 0.
    """
    n = coordinates.shape[0]
    upper = sp.triu(pattern, k=1).tocoo()
    rows, cols = upper.row.astype(np.int64), upper.col.astype(np.int64)
    along = np.empty(rows.size)
    flow_term(in_space(coordinates), normals, rows, cols, along)
    cosine = np.empty(rows.size)
    if isinstance(features, np.ndarray):
        cosine_dense(features, rows, cols, cosine)
    else:
        features.sort_indices()
        cosine_csr(features.data, features.indices, features.indptr, rows, cols, cosine)
    # (along + tau * similarity) * upper.data * beta, in the arrays themselves: a section may have 10^8 edges
    cosine += 1.0
    cosine[np.isnan(cosine)] = 0.0
    cosine *= tau
    along += cosine
    along *= beta * upper.data
    del rows, cols, cosine
    one_way = sp.csr_matrix((along, (upper.row, upper.col)), shape=(n, n))
    del upper, along
    graph = (one_way + one_way.T).tocsr()
    graph.eliminate_zeros()
    graph.sort_indices()
    return graph


def weigh_by_layers(
    pattern: sp.csr_matrix, coordinates: np.ndarray, forms: np.ndarray, *, anisotropy: float, beta: float
) -> sp.csr_matrix:
    """Return a symmetric CSR (n, n) in which edges along layers weigh more than edges across them (C13).

    A border costs the edges that it cuts. One that runs along the layers is cheap, so that a thin layer can be a
    domain, and one that cuts through them is dear.

    Parameters
    ----------
    pattern
        Symmetric, no diagonal; its values multiply the weights (1 for a k-nearest-neighbour graph).
    coordinates
        (n, D), any unit; D is 2 or 3.
    forms
        Q (n, D, D), from `spatialpdvi.graph.layers.layer_forms`.
    anisotropy
        kappa, from 0 for edges that weigh the same in all directions to 1.
    beta
        Potts strength, >= 0. Rows sum to ``7 beta`` on average.
    """
    rows = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
    values = np.empty(pattern.nnz)
    quadratic_form(coordinates, forms, rows, pattern.indices, values)
    values *= -anisotropy
    values += 1.0
    values *= pattern.data
    return scale_weights(sp.csr_matrix((values, pattern.indices, pattern.indptr), shape=pattern.shape), beta=beta)


def scale_weights(pattern: sp.csr_matrix, *, beta: float) -> sp.csr_matrix:
    """Return a symmetric CSR (n, n), the pattern times a number such that rows sum to ``7 beta`` on average.

    What decides how smooth the domains of a mixture of compositions are is the total weight of a spot's neighbours,
    and not how many there are.

    Parameters
    ----------
    pattern
        Symmetric, no diagonal; its values multiply the weights (1 for a k-nearest-neighbour graph).
    beta
        Potts strength, >= 0.
    """
    values = pattern.data.astype(np.float64)
    total = float(values.sum())
    values *= beta * _TOTAL * pattern.shape[0] / total if total else 0.0
    graph = sp.csr_matrix((values, pattern.indices, pattern.indptr), shape=pattern.shape)
    if not (values.all() and graph.has_sorted_indices):
        graph = graph.copy()  # what follows would change the pattern, which has the same indices
        graph.eliminate_zeros()
        graph.sort_indices()
    return graph
