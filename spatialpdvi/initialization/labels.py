"""Labels by clustering of smoothed features: Gaussian mixtures and k-means, one by one or many side by side."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np

from spatialpdvi.runtime.threads import n_threads

__all__ = ["in_unit_range", "kmeans_labels", "mixture_labels", "restart_labels"]

_LEARNT_FROM = 20_000  # spots at the most; the others are labelled by what these taught
_MOST_STEPS = 200
_RIDGE = 1e-6  # of the mean variance, on the covariance's diagonal: columns may be constant or collinear
_MIXTURES = 3  # restarts by a mixture for each by k-means


def restart_labels(views: Iterable[np.ndarray], k: int, *, n_init: int, seed: int) -> tuple[np.ndarray, ...]:
    """Labels (n,) by ``n_init`` mixtures and a third as many k-means on every view.

    The mixtures are right more often; the few k-means are wrong elsewhere, and keep a consensus off what mixtures get
    wrong together. Restarts know nothing of each other and run side by side, each on one thread: the same bits for
    any number of them. Call inside `spatialpdvi.runtime.threads.single_threaded`.

    Parameters
    ----------
    views
        (n, d) each: the features at several scales, in a range that clusters may be sought in (`in_unit_range`).
    """
    methods: list[Callable[..., np.ndarray]] = [_mixture] * n_init + [_kmeans] * -(-n_init // _MIXTURES)
    rng = np.random.default_rng(seed)
    tasks = [(method, view, int(rng.integers(2**32))) for view in views for method in methods]
    with _unworried(), ThreadPoolExecutor(n_threads(), initializer=_stay_single) as pool:
        return tuple(pool.map(lambda task: task[0](task[1], k, seed=task[2]), tasks))


def kmeans_labels(features: np.ndarray, k: int, *, seed: int, n_init: int = 10) -> np.ndarray:
    """k-means labels (n,) by scikit-learn, the best of ``n_init`` starts, learnt from 20,000 spots at the most.

    Call inside `spatialpdvi.runtime.threads.single_threaded`: its sums depend on the number of threads.
    """
    with _unworried():
        return _kmeans(features, k, seed=seed, n_init=n_init)


def mixture_labels(features: np.ndarray, k: int, *, seed: int) -> np.ndarray:
    """Labels (n,) by scikit-learn's Gaussian mixture with one common ("tied") full covariance, started by k-means.

    A common covariance finds clusters that are long in the same direction, as tissue layers along a gradient of
    quality or depth are, where k-means cuts them across. Learnt from 20,000 spots at the most. Call inside
    `spatialpdvi.runtime.threads.single_threaded`.
    """
    with _unworried():
        return _mixture(features, k, seed=seed)


def in_unit_range(features: np.ndarray) -> np.ndarray:
    """Features (n, d) as float32 that clusters may be sought in, in any unit: centred, divided by one number for all.

    Squares of 1e30 overflow, and digits of 1e12 + 1 get lost. Once for all restarts on the same features.
    """
    centred = features - features.mean(axis=0, dtype=np.float64)
    return np.asarray(centred / (np.abs(centred).max() or 1.0)).astype(np.float32)


def _kmeans(features: np.ndarray, k: int, *, seed: int, n_init: int = 1) -> np.ndarray:
    from sklearn.cluster import KMeans

    means = KMeans(k, n_init=n_init, random_state=seed).fit(_some(features, seed))
    return np.asarray(means.predict(features), dtype=np.int64)


def _mixture(features: np.ndarray, k: int, *, seed: int) -> np.ndarray:
    from sklearn.mixture import GaussianMixture

    some = _some(features, seed).astype(np.float64)
    variance = float(some.var(axis=0).mean())
    if variance == 0.0 or _are_few(some, k):
        return _kmeans(features, k, seed=seed)
    mixture = GaussianMixture(
        k, covariance_type="tied", reg_covar=_RIDGE * variance, max_iter=_MOST_STEPS, random_state=seed
    ).fit(some)
    # with one covariance for all the log posterior is linear in x: a single product, where `predict` makes K of them
    weight = mixture.precisions_ @ mixture.means_.T
    with np.errstate(divide="ignore"):  # a component without weight: never chosen
        offset = np.log(mixture.weights_) - 0.5 * (mixture.means_.T * weight).sum(axis=0)
    return np.asarray((features.astype(np.float64) @ weight + offset).argmax(axis=1), dtype=np.int64)


def _stay_single() -> None:
    """Limit this thread's OpenMP, whose settings are each thread's own; whoever started it puts BLAS back."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


@contextmanager
def _unworried() -> Iterator[None]:
    """Without warnings that do not concern a start; for all threads, so not to be entered within one of several."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # fewer distinct spots than clusters: some start empty, and the fit says how many domains are left; and the
        # steps that a mixture was given are enough to tell clusters apart
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def _are_few(features: np.ndarray, k: int) -> bool:
    """Whether there are at most k different rows; of one column that is told far sooner, and mostly enough."""
    return np.unique(features[:, 0]).size <= k and np.unique(features, axis=0).shape[0] <= k


def _some(features: np.ndarray, seed: int) -> np.ndarray:
    n = features.shape[0]
    if n <= _LEARNT_FROM:
        return features
    return features[np.sort(np.random.default_rng(seed).choice(n, _LEARNT_FROM, replace=False))]
