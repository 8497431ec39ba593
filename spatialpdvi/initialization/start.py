"""From labels to a start: features whitened by the labels, hyperparameters, means and log variances."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from spatialpdvi.graph.patches import Patch
from spatialpdvi.problems.composition import CompositionMixture
from spatialpdvi.problems.features import Features
from spatialpdvi.problems.potts_mixture import Hyperparameters, PottsGlobals, PottsMixture, log_variance
from spatialpdvi.runtime.rows import slices

__all__ = ["Start", "noise_rotation", "start_from_labels", "whitening"]

_SHRUNK = 1e-3  # weight of a sphere in the covariance: directions without noise would be scaled without bound


class Start(NamedTuple):
    """A starting point, and the hyperparameters estimated from it."""

    labels: np.ndarray  # (n,) int64 in 0..K-1
    lam: Any  # `PottsGlobals`, or `CompositionGlobals` where domains share states
    hyperparameters: Hyperparameters
    prior_weight: np.ndarray | None = None  # a (C,) of the compositions; None where domains share no states

    @property
    def n_domains(self) -> int:
        """K."""
        return int((self.lam.m if self.prior_weight is None else self.lam.theta).shape[0])

    def problem(self, features: Features, patches: Iterable[Patch]) -> PottsMixture:
        """Return the problem on features whose rows are in the order of the patches; states are held."""
        if self.prior_weight is None:
            return PottsMixture(features, patches, self.hyperparameters)
        held = PottsGlobals(self.lam.m, self.lam.rho)
        return CompositionMixture(features, patches, self.hyperparameters, prior_weight=self.prior_weight, held=held)


def start_from_labels(
    features: np.ndarray | sp.csr_matrix, labels: np.ndarray, k: int, *, hyperparameters: Hyperparameters | None = None
) -> Start:
    """Return the hyperparameters and globals that follow from start labels (docs/math.md).

    sigma0^2 is the within-cluster variance averaged over spots, sigma1^2 the variance of the cluster means, and xi the
    mean of the data. m starts at the cluster means, and rho at its closed form ``-log(N/sigma0^2 + 1/sigma1^2)``, the
    variance of a *mean*. An empty cluster starts at xi with the variance of the prior.

    Parameters
    ----------
    features
        x (n, d), dense or CSR.
    labels
        (n,) in 0..k-1.
    k
        K, clusters without a spot included.
    hyperparameters
        To use instead of those of the labels: F of two starts can be compared only where they are the same.
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
    return Start(labels, PottsGlobals(means, log_variance(counts, hyperparameters)), hyperparameters)


def noise_rotation(features: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    """Return the matrix W (d, d) for which ``features @ W`` has the unit matrix as its covariance within clusters.

    Sigma0 of the model is diagonal; in these coordinates, those of `whitening`, it stands for a full one. Call inside
    `spatialpdvi.runtime.threads.single_threaded`.

    Parameters
    ----------
    features
        (n, d) dense.
    labels
        (n,) in 0..k-1.
    k
        K.
    """
    d = features.shape[1]
    within = np.zeros((d, d))
    for cluster in range(k):
        own = features[labels == cluster].astype(np.float64)
        if len(own):
            own -= own.mean(axis=0)
            within += own.T @ own
    within /= features.shape[0]
    spherical = np.trace(within) / d
    if spherical == 0.0:  # as many clusters as spots: no noise can be estimated
        return np.eye(d)
    return whitening((1.0 - _SHRUNK) * within + _SHRUNK * spherical * np.eye(d))


def whitening(covariance: np.ndarray) -> np.ndarray:
    """Return the matrix W (d, d) for which ``x @ W`` has the unit matrix as its covariance, given that of x (d, d).

    W = V diag(1/sqrt(w)) with the eigenvalues w and eigenvectors V, the noisiest direction last, each with its largest
    entry positive. Call inside `spatialpdvi.runtime.threads.single_threaded`.
    """
    values, vectors = np.linalg.eigh(covariance)
    vectors *= np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(values.size)])
    return np.asarray(vectors / np.sqrt(values))


def _floored(within: np.ndarray, between: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Variances of at least 1e-6 of the typical feature's, so that no division by that of a constant feature fails."""
    total = within + between
    scale = float(np.median(total[total > 0])) if (total > 0).any() else 1.0
    floor = 1e-6 * scale
    return np.maximum(within, floor), np.maximum(between, floor)


def _within(
    features: np.ndarray | sp.csr_matrix, labels: np.ndarray, means: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Squared distances to the own cluster's mean, summed over spots, feature by feature (d,).

    Dense features are centred first: a difference of large squares would lose the digits of features that lie far
    from zero. Sparse features are mostly zero and are not centred; there the difference is between numbers of one size.
    """
    if isinstance(features, np.ndarray):
        total = np.zeros(features.shape[1])
        for block in slices(features.shape[0]):
            total += ((features[block] - means[labels[block]]) ** 2).sum(axis=0)
        return total
    squares = np.asarray(features.astype(np.float64).power(2).sum(axis=0)).ravel()
    return np.maximum(squares - (counts[:, None] * means**2).sum(axis=0), 0.0)


def _dense(x: np.ndarray | sp.csr_matrix) -> np.ndarray:
    return np.asarray(x if isinstance(x, np.ndarray) else x.todense(), dtype=np.float64)
