"""Draws from the Potts prior: the domain of each spot in turn, given those of its neighbours."""

import numpy as np

from spatialpdvi.kernels.dispatch import compiled

__all__ = ["draw_domains"]


@compiled
def draw_domains(indptr, indices, r, uniform, k, labels):
    """Draw the domain of every spot once, in the order of the spots (Gibbs sampling).

    Parameters
    ----------
    indptr, indices, r
        CSR (n, n) of the weights, each edge twice.
    uniform
        (n,) numbers in [0, 1), drawn independently.
    k
        Number of domains.
    labels
        (n,) int64 in 0..k-1; overwritten.
    """
    pull = np.zeros(k)
    chance = np.empty(k)
    for i in range(labels.size):
        top = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            domain = labels[indices[e]]
            pull[domain] += r[e]
            top = max(top, pull[domain])
        alone = np.exp(-top)  # of a domain that no neighbour has
        total = 0.0
        for domain in range(k):
            chance[domain] = np.exp(pull[domain] - top) if pull[domain] > 0 else alone
            total += chance[domain]
        for e in range(indptr[i], indptr[i + 1]):
            pull[labels[indices[e]]] = 0.0
        left, domain = uniform[i] * total, 0
        while domain < k - 1 and left >= chance[domain]:
            left -= chance[domain]
            domain += 1
        labels[i] = domain
