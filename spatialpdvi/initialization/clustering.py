r"""K-means and the Gaussian mixture with one common ("tied") covariance, by compiled loops.

Both are as in scikit-learn, with its draws of random numbers and its rules of when to stop, so that labels are the same
up to rounding. They are a few times as fast: with one covariance, the log-likelihoods are linear in x up to a term that
all clusters share, and the covariance follows from the means,

    log p(x, k) = log w_k + m_k^T P x - 1/2 m_k^T P m_k + c(x)          sum_ik gamma_ik (x_i - m_k)(x_i - m_k)^T
                                                                            = sum_i x_i x_i^T - sum_k N_k m_k m_k^T

A fit of a small section makes hundreds of these. Nothing here may know what the features mean.
"""

from typing import NamedTuple

import numpy as np

from spatialpdvi.kernels.clustering import (
    fit_components,
    linear_terms,
    maximise,
    most_likely,
    move_centres,
    posteriors,
    seed_centres,
    sums_by_label,
    to_nearest,
)
from spatialpdvi.kernels.mixture import N_CHUNKS, data_term_dense

__all__ = ["Mixture", "fit_kmeans", "fit_mixture", "mixture_of", "nearest_centre"]

_MOST_ITERATIONS = 300  # of k-means
_MOST_STEPS = 200  # of EM
_MOVED = 1e-4  # of the mean variance: k-means stops where the squares of all moves of its centres add up to less
_GAINED = 1e-3  # nats a spot: EM stops where the log-likelihood changes by less


class Mixture(NamedTuple):
    """A Gaussian mixture whose components have one covariance."""

    weights: np.ndarray  # w (K,), which add up to 1
    means: np.ndarray  # m (K, d)
    covariance: np.ndarray  # (d, d)

    def linear(self) -> tuple[np.ndarray, np.ndarray]:
        """Return A (d, K) and b (K,) for which ``x @ A - b`` is the log of each spot's densities, but for one term.

        That term is the same for all components.
        """
        k, d = self.means.shape
        weight, offset = np.empty((d, k)), np.empty(k)
        linear_terms(*self, np.empty((d, d)), weight, offset)
        return weight, offset

    def posterior(self, x: np.ndarray) -> np.ndarray:
        """Return the probabilities (n, K) of the components of each spot of x (n, d)."""
        gamma = np.empty((x.shape[0], self.weights.size))
        data_term_dense(x, *self.linear(), gamma)
        posteriors(gamma, np.empty(x.shape[0]))
        return gamma

    def labels(self, x: np.ndarray) -> np.ndarray:
        """Return the likeliest component (n,) of each spot of x (n, d)."""
        labels = np.empty(x.shape[0], dtype=np.int64)
        most_likely(np.ascontiguousarray(x), *self.linear(), labels)
        return labels


def fit_mixture(x: np.ndarray, k: int, *, seed: int, ridge: float) -> Mixture:
    """Fit a mixture by EM, from k-means.

    Parameters
    ----------
    x
        (n, d) dense, of at least K rows.
    k
        K.
    seed
        Of k-means.
    ridge
        Added to the diagonal of the covariance: columns may be constant or collinear.
    """
    centre, centred = _centred(x)
    squares = centred.T @ centred
    labels = _kmeans(centred, k, np.random.RandomState(seed))[0]
    mixture = _likeliest(centred, labels, k, squares, ridge)
    fit_components(centred, squares, ridge, _MOST_STEPS, _GAINED, *mixture)
    return mixture._replace(means=mixture.means + centre)


def mixture_of(x: np.ndarray, labels: np.ndarray, k: int, *, ridge: float) -> Mixture:
    """Return the likeliest mixture of x (n, d) whose components have the spots of given labels (n,).

    Parameters
    ----------
    x, k, ridge
        As for `fit_mixture`.
    labels
        In 0..K-1.
    """
    centre, centred = _centred(x)
    mixture = _likeliest(centred, labels, k, centred.T @ centred, ridge)
    return mixture._replace(means=mixture.means + centre)


def fit_kmeans(x: np.ndarray, k: int, *, seed: int, n_init: int) -> np.ndarray:
    """Return the centres (K, d) of the best of several k-means of x (n, d), each from a greedy k-means++."""
    centre, centred = _centred(x)
    rng = np.random.RandomState(seed)
    best, lowest = np.zeros((k, x.shape[1])), np.inf
    for _ in range(n_init):
        labels, centres = _kmeans(centred, k, rng)
        inertia = float(((centred - centres[labels]) ** 2).sum()) if n_init > 1 else 0.0
        if inertia < lowest:
            best, lowest = centres, inertia
    return best + centre


def nearest_centre(x: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return the nearest of the centres (K, d) of each spot (n,) of x (n, d)."""
    labels = np.empty(x.shape[0], dtype=np.int64)
    to_nearest(np.ascontiguousarray(x), np.ascontiguousarray(centres), labels)
    return labels


def _centred(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    centre = x.mean(axis=0, dtype=np.float64)
    return centre, np.ascontiguousarray(x - centre)


def _likeliest(x: np.ndarray, labels: np.ndarray, k: int, squares: np.ndarray, ridge: float) -> Mixture:
    """Return the likeliest mixture of centred x (n, d) with components of given labels; squares are ``x^T x``."""
    d = x.shape[1]
    counts, sums = np.empty((N_CHUNKS, k)), np.empty((N_CHUNKS, k, d))
    sums_by_label(x, labels, counts, sums)
    mixture = Mixture(np.empty(k), np.empty((k, d)), np.empty((d, d)))
    maximise(counts.sum(axis=0), np.ascontiguousarray(sums.sum(axis=0).T), squares, ridge, *mixture)
    return mixture


def _kmeans(x: np.ndarray, k: int, rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Labels (n,) and centres (K, d) of one k-means of centred x (n, d)."""
    n, n_candidates = x.shape[0], 2 + int(np.log(k))
    first = min(int(rng.random_sample() * n), n - 1)
    centres, labels = np.empty((k, x.shape[1])), np.empty(n, dtype=np.int64)
    seed_centres(x, first, rng.uniform(size=(k - 1, n_candidates)), centres)
    move_centres(x, _MOST_ITERATIONS, _MOVED * float(x.var(axis=0).mean()), centres, labels)
    return labels, centres
