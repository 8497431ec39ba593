"""Hyperparameters, means and log variances that follow from start labels."""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from spatialpdvi.problems.potts_mixture import Hyperparameters, PottsGlobals

__all__ = ["Start", "one_hot", "start_from_labels"]

_BLOCK = 100_000


class Start(NamedTuple):
    """A starting point and the hyperparameters estimated from it."""

    labels: np.ndarray  # (n,) int64 in 0..K-1
    lam: PottsGlobals
    hyperparameters: Hyperparameters


def start_from_labels(
    features: np.ndarray | sp.csr_matrix, labels: np.ndarray, k: int, *, hyperparameters: Hyperparameters | None = None
) -> Start:
    """Hyperparameters and globals from start labels (docs/math.md).

    sigma0^2 is the within-cluster variance averaged over spots, sigma1^2 the variance of the cluster means, xi the
    mean of the data; m starts at the cluster means and rho at its closed form ``-log(N/sigma0^2 + 1/sigma1^2)``,
    the variance of a *mean*. An empty cluster starts at xi with the prior's variance. Hyperparameters that are given
    are kept: F of two starts can be compared only where they are the same.
    """
    n, d = features.shape
    counts = np.bincount(labels, minlength=k).astype(np.float64)
    indicator = sp.csr_matrix((np.ones(n), (labels, np.arange(n))), shape=(k, n))
    sums = _dense(indicator @ features)
    xi = sums.sum(axis=0) / n
    filled = counts > 0
    means = np.where(filled[:, None], sums / np.maximum(counts, 1.0)[:, None], xi)
    if hyperparameters is None:
        within = _within(features, labels, means, counts) / n
        between = means[filled].var(axis=0) if filled.sum() > 1 else np.zeros(d)
        noise, prior = _floored(within, between)
        hyperparameters = Hyperparameters(np.sqrt(noise), np.sqrt(prior), xi)
    precision = counts[:, None] / hyperparameters.noise_sd**2 + 1.0 / hyperparameters.prior_sd**2
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
