"""Labels from clusterings of the smoothed features by Gaussian mixtures and k-means, one at a time or in parallel."""

import warnings
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
import scipy.sparse as sp

from spatialpdvi.initialization.clustering import fit_kmeans, fit_mixture, nearest_centre
from spatialpdvi.runtime.rows import slices, some_rows
from spatialpdvi.runtime.threads import on_threads

__all__ = [
    "LEARNT_FROM",
    "RIDGE",
    "in_unit_range",
    "kmeans_labels",
    "mixture_labels",
    "restart_labels",
    "subset",
]

LEARNT_FROM = 20_000  # spots at most; the others are labelled with what was learnt from these
RIDGE = 1e-6  # of the mean variance, on the covariance's diagonal: columns may be constant or collinear
_Rows = TypeVar("_Rows", np.ndarray, sp.csr_matrix)
_MIXTURES = 3  # restarts by a mixture for each by k-means


def restart_labels(by_scale: Iterable[np.ndarray], k: int, *, n_init: int, seed: int) -> tuple[np.ndarray, ...]:
    """Return the labels of ``n_init`` mixtures and a third as many k-means at every scale, (n,) of a small type each.

    The mixtures are right more often. The few k-means make other mistakes, which keeps the consensus from mistakes that
    all mixtures make. Restarts are independent and run in parallel, each on one thread, so that they are
    reproducible for any number of threads. Call inside `spatialpdvi.runtime.threads.single_threaded`.

    Parameters
    ----------
    by_scale
        (n, d) each: the features smoothed at several scales, scaled by `in_unit_range`.
    k
        K.
    n_init
        Mixtures at each scale.
    seed
        Of the seeds of all restarts.
    """
    methods: list[Callable[..., np.ndarray]] = [mixture_labels] * n_init + [kmeans_labels] * -(-n_init // _MIXTURES)
    rng = np.random.default_rng(seed)
    tasks = [(method, features, int(rng.integers(2**32))) for features in by_scale for method in methods]
    small = np.min_scalar_type(k - 1)  # there are dozens of restarts of what may be millions of spots
    return tuple(on_threads(lambda task: task[0](task[1], k, seed=task[2]).astype(small), tasks))


def kmeans_labels(features: np.ndarray | sp.csr_matrix, k: int, *, seed: int, n_init: int = 1) -> np.ndarray:
    """Return k-means labels (n,), the best of ``n_init`` starts, learnt from at most 20,000 spots.

    Call inside `spatialpdvi.runtime.threads.single_threaded`: sums depend on the number of threads.
    """
    some = subset(features, seed)
    if isinstance(features, np.ndarray):
        return nearest_centre(features, fit_kmeans(np.asarray(some), k, seed=seed, n_init=n_init))
    return _sparse_kmeans(features, some, k, seed=seed, n_init=n_init)


def mixture_labels(features: np.ndarray, k: int, *, seed: int) -> np.ndarray:
    """Return labels (n,) by a Gaussian mixture with one common ("tied") full covariance, from k-means.

    A common covariance finds clusters that are all long in one direction, as tissue layers along a gradient of quality
    or depth are; k-means cuts them across. Learnt from at most 20,000 spots. Call inside
    `spatialpdvi.runtime.threads.single_threaded`.
    """
    some = subset(features, seed).astype(np.float64)
    variance = float(some.var(axis=0).mean())
    if variance == 0.0 or _are_few(some, k):
        return kmeans_labels(features, k, seed=seed)
    return fit_mixture(some, k, seed=seed, ridge=RIDGE * variance).labels(features)


def in_unit_range(features: np.ndarray) -> np.ndarray:
    """Return features (n, d) as float32, centred and divided by their largest absolute value, ready for clustering.

    Without this, squares of 1e30 would overflow, and digits of 1e12 + 1 would be lost.
    """
    mean = features.mean(axis=0, dtype=np.float64)
    blocks = list(slices(features.shape[0]))
    largest = max(np.abs(features[block] - mean).max() for block in blocks) or 1.0
    scaled = np.empty(features.shape, dtype=np.float32)
    for block in blocks:
        scaled[block] = (features[block] - mean) / largest
    return scaled


def _sparse_kmeans(features: sp.csr_matrix, some: sp.csr_matrix, k: int, *, seed: int, n_init: int) -> np.ndarray:
    """K-means labels (n,) of sparse features by scikit-learn, whose import takes longer than small dense k-means."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # with fewer distinct spots than clusters some clusters start empty, and the fit warns of empty domains
        warnings.simplefilter("ignore", ConvergenceWarning)
        means = KMeans(k, n_init=n_init, random_state=seed).fit(some)
    return np.asarray(means.predict(features), dtype=np.int64)


def _are_few(features: np.ndarray, k: int) -> bool:
    """Whether there are at most k different rows; one column decides that far sooner, in most cases."""
    return np.unique(features[:, 0]).size <= k and np.unique(features, axis=0).shape[0] <= k


def subset(features: _Rows, seed: int) -> _Rows:
    """Return 20,000 random rows of features (n, d), in their order; all of them where there are no more."""
    return some_rows(features, seed, LEARNT_FROM)
