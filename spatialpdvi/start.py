"""Where the fit starts: labels by seeded k-means on neighbour-averaged features, and what follows from them."""

import warnings
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from spatialpdvi.graph.neighbors import nearest_spots
from spatialpdvi.problems.potts_gmm import Hyperparameters, PottsGlobals

__all__ = ["Start", "average_neighbors", "kmeans_labels", "one_hot", "start_from_labels"]

_BLOCK = 100_000


class Start(NamedTuple):
    """A starting point and the hyperparameters estimated from it."""

    labels: np.ndarray  # (n,) int64 in 0..K-1
    lam: PottsGlobals
    hyperparameters: Hyperparameters


def average_neighbors(features: np.ndarray, coordinates: np.ndarray, n_neighbors: int) -> np.ndarray:
    """Mean (n, d) of the features over each spot and its ``n_neighbors`` nearest; 0 leaves them as they are."""
    if n_neighbors == 0:
        return features
    tree = cKDTree(coordinates)
    out = np.empty(features.shape)
    for start in range(0, features.shape[0], _BLOCK):
        own = np.arange(start, min(start + _BLOCK, features.shape[0]))
        index = nearest_spots(tree, own, n_neighbors)
        total = features[own].astype(np.float64)
        for column in range(index.shape[1]):
            total += features[index[:, column]]
        out[own] = total / (index.shape[1] + 1)
    return out


def kmeans_labels(features: np.ndarray, k: int, *, seed: int, n_init: int = 10) -> np.ndarray:
    """Labels (n,) by scikit-learn's k-means with ``n_init`` seeded k-means++ starts.

    Call inside `spatialpdvi.threads.single_threaded`: its parallel sums arrive in any order.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # fewer distinct spots than clusters: some start empty, and the fit says how many domains are left
        warnings.filterwarnings("ignore", message="Number of distinct clusters", category=ConvergenceWarning)
        means = KMeans(k, n_init=n_init, random_state=seed).fit(features)
    return means.labels_.astype(np.int64)


def start_from_labels(features: np.ndarray | sp.csr_matrix, labels: np.ndarray, k: int) -> Start:
    """Hyperparameters and globals from start labels (docs/math.md).

    sigma0^2 is the within-cluster variance averaged over spots, sigma1^2 the variance of the cluster means, xi the
    mean of the data; m starts at the cluster means and rho at its closed form ``-log(N/sigma0^2 + 1/sigma1^2)``,
    the variance of a *mean*. An empty cluster starts at xi with the prior's variance.
    """
    n, d = features.shape
    counts = np.bincount(labels, minlength=k).astype(np.float64)
    indicator = sp.csr_matrix((np.ones(n), (labels, np.arange(n))), shape=(k, n))
    sums = _dense(indicator @ features)
    xi = sums.sum(axis=0) / n
    filled = counts > 0
    means = np.where(filled[:, None], sums / np.maximum(counts, 1.0)[:, None], xi)
    within = _within(features, labels, means, counts) / n
    between = means[filled].var(axis=0) if filled.sum() > 1 else np.zeros(d)
    noise, prior = _floored(within, between)
    precision = counts[:, None] / noise + 1.0 / prior
    hyperparameters = Hyperparameters(np.sqrt(noise), np.sqrt(prior), xi)
    return Start(labels, PottsGlobals(means, -np.log(precision)), hyperparameters)


def one_hot(labels: np.ndarray, k: int) -> np.ndarray:
    """Posterior (n, k) that is sure of its label."""
    phi = np.zeros((labels.size, k))
    phi[np.arange(labels.size), labels] = 1.0
    return phi


def _floored(within: np.ndarray, between: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Variances kept above 1e-6 of the typical feature's, so that a constant feature divides nothing by zero."""
    total = within + between
    scale = float(np.median(total[total > 0])) if (total > 0).any() else 1.0
    floor = 1e-6 * scale
    return np.maximum(within, floor), np.maximum(between, floor)


def _within(
    features: np.ndarray | sp.csr_matrix, labels: np.ndarray, means: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Squared distances to the own cluster's mean, summed over spots, feature by feature (d,).

    Dense features are centred first: a difference of large squares would lose the digits of features that lie far
    from zero. Sparse ones are mostly zeros and not centred; there the difference is of numbers of one size.
    """
    if isinstance(features, np.ndarray):
        total = np.zeros(features.shape[1])
        for start in range(0, features.shape[0], _BLOCK):
            block = slice(start, start + _BLOCK)
            total += ((features[block] - means[labels[block]]) ** 2).sum(axis=0)
        return total
    squares = np.asarray(features.astype(np.float64).power(2).sum(axis=0)).ravel()
    return np.maximum(squares - (counts[:, None] * means**2).sum(axis=0), 0.0)


def _dense(x: np.ndarray | sp.csr_matrix) -> np.ndarray:
    return np.asarray(x if isinstance(x, np.ndarray) else x.todense(), dtype=np.float64)
