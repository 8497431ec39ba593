"""Labels from clusterings of the smoothed features by Gaussian mixtures and k-means, one at a time or in parallel."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from spatialpdvi.runtime.rows import slices
from spatialpdvi.runtime.threads import n_threads

__all__ = ["LEARNT_FROM", "in_unit_range", "kmeans_labels", "mixture_labels", "restart_labels", "subset"]

LEARNT_FROM = 20_000  # spots at most; the others are labelled with what was learnt from these
_MOST_STEPS = 200
_RIDGE = 1e-6  # of the mean variance, on the covariance's diagonal: columns may be constant or collinear
_Rows = TypeVar("_Rows", np.ndarray, sp.csr_matrix)
_MIXTURES = 3  # restarts by a mixture for each by k-means
_BLOCK = 100_000  # spots that are scaled or labelled at a time


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
    methods: list[Callable[..., np.ndarray]] = [_mixture] * n_init + [_kmeans] * -(-n_init // _MIXTURES)
    rng = np.random.default_rng(seed)
    tasks = [(method, features, int(rng.integers(2**32))) for features in by_scale for method in methods]
    small = np.min_scalar_type(k - 1)  # there are dozens of restarts of what may be millions of spots
    with _ignored_warnings(), ThreadPoolExecutor(n_threads(), initializer=_limit_thread) as pool:
        return tuple(pool.map(lambda task: task[0](task[1], k, seed=task[2]).astype(small), tasks))


def kmeans_labels(features: np.ndarray | sp.csr_matrix, k: int, *, seed: int, n_init: int = 10) -> np.ndarray:
    """Return k-means labels (n,) by scikit-learn, the best of ``n_init`` starts, learnt from at most 20,000 spots.

    Call inside `spatialpdvi.runtime.threads.single_threaded`: its sums depend on the number of threads.
    """
    with _ignored_warnings():
        return _kmeans(features, k, seed=seed, n_init=n_init)


def mixture_labels(features: np.ndarray, k: int, *, seed: int) -> np.ndarray:
    """Return labels (n,) by scikit-learn's Gaussian mixture with one common ("tied") full covariance.

    It is initialised by k-means. A common covariance finds clusters that are all long in one direction, as tissue
    layers along a gradient of quality or depth are; k-means cuts them across. Learnt from at most 20,000 spots. Call
    inside `spatialpdvi.runtime.threads.single_threaded`.
    """
    with _ignored_warnings():
        return _mixture(features, k, seed=seed)


def in_unit_range(features: np.ndarray) -> np.ndarray:
    """Return features (n, d) as float32, centred and divided by their largest absolute value, ready for clustering.

    Without this, squares of 1e30 would overflow, and digits of 1e12 + 1 would be lost.
    """
    mean = features.mean(axis=0, dtype=np.float64)
    blocks = list(slices(features.shape[0], _BLOCK))
    largest = max(np.abs(features[block] - mean).max() for block in blocks) or 1.0
    scaled = np.empty(features.shape, dtype=np.float32)
    for block in blocks:
        scaled[block] = (features[block] - mean) / largest
    return scaled


def _kmeans(features: np.ndarray | sp.csr_matrix, k: int, *, seed: int, n_init: int = 1) -> np.ndarray:
    from sklearn.cluster import KMeans

    means = KMeans(k, n_init=n_init, random_state=seed).fit(subset(features, LEARNT_FROM, seed))
    return _labels(means.predict, features)


def _mixture(features: np.ndarray, k: int, *, seed: int) -> np.ndarray:
    from sklearn.mixture import GaussianMixture

    some = subset(features, LEARNT_FROM, seed).astype(np.float64)
    variance = float(some.var(axis=0).mean())
    if variance == 0.0 or _are_few(some, k):
        return _kmeans(features, k, seed=seed)
    mixture = GaussianMixture(
        k, covariance_type="tied", reg_covar=_RIDGE * variance, max_iter=_MOST_STEPS, random_state=seed
    ).fit(some)
    # with one covariance the log posterior is linear in x: a single product, where `predict` makes K of them
    weight = mixture.precisions_ @ mixture.means_.T
    with np.errstate(divide="ignore"):  # a component without weight is never chosen
        offset = np.log(mixture.weights_) - 0.5 * (mixture.means_.T * weight).sum(axis=0)
    return _labels(lambda block: (block.astype(np.float64) @ weight + offset).argmax(axis=1), features)


def _labels(predict: Callable[[Any], np.ndarray], features: np.ndarray | sp.csr_matrix) -> np.ndarray:
    """Label all spots (n,), block by block, since copies of all features would be several times the section."""
    labels = np.empty(features.shape[0], dtype=np.int64)
    for block in slices(labels.size, _BLOCK):
        labels[block] = predict(features[block])
    return labels


def _limit_thread() -> None:
    """Limit OpenMP, whose settings belong to each thread; the thread that started this one restores those of BLAS."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


@contextmanager
def _ignored_warnings() -> Iterator[None]:
    """Suppress warnings that do not matter for a start, in all threads: do not enter it from one of several."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # With fewer distinct spots than clusters some clusters start empty, and the fit warns of empty domains. A
        # mixture that used up its steps has separated its clusters well enough for a start.
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def _are_few(features: np.ndarray, k: int) -> bool:
    """Whether there are at most k different rows; one column decides that far sooner, in most cases."""
    return np.unique(features[:, 0]).size <= k and np.unique(features, axis=0).shape[0] <= k


def subset(features: _Rows, most: int, seed: int) -> _Rows:
    """Return ``most`` random rows of features (n, d), in their order; all of them where there are no more."""
    n = features.shape[0]
    if n <= most:
        return features
    return features[np.sort(np.random.default_rng(seed).choice(n, most, replace=False))]
