"""Labels of spots by their features alone: k-means, and a Gaussian mixture of one common covariance."""

import warnings

import numpy as np

__all__ = ["in_unit_range", "kmeans_labels", "mixture_labels"]

_LEARNT_FROM = 20_000  # spots at the most; the others are labelled by what these taught
_MOST_STEPS = 200
_RIDGE = 1e-4  # of the mean variance, added to the common covariance


def kmeans_labels(features: np.ndarray, k: int, *, seed: int, n_init: int = 10) -> np.ndarray:
    """Labels (n,) by scikit-learn's k-means with ``n_init`` seeded k-means++ starts.

    Call inside `spatialpdvi.threads.single_threaded`: its parallel sums arrive in any order.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # fewer distinct spots than clusters: some start empty, and the fit says how many domains are left
        warnings.filterwarnings("ignore", message="Number of distinct clusters", category=ConvergenceWarning)
        means = KMeans(k, n_init=n_init, random_state=seed).fit(_some(features, seed))
        return np.asarray(means.predict(features), dtype=np.int64)


def mixture_labels(features: np.ndarray, k: int, *, seed: int) -> np.ndarray:
    """Labels (n,) by scikit-learn's Gaussian mixture with one common ("tied") full covariance, started by k-means.

    A common covariance finds clusters that are long in the same direction, as tissue layers along a gradient of
    quality or depth are, where k-means cuts them across. Learnt from 20,000 spots at the most. Call inside
    `spatialpdvi.threads.single_threaded`.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    features = features.astype(np.float64)
    some = _some(features, seed)
    variance = float(some.var(axis=0).mean())
    if variance == 0.0 or _are_few(some, k):
        return kmeans_labels(features, k, seed=seed, n_init=1)
    mixture = GaussianMixture(
        k, covariance_type="tied", reg_covar=_RIDGE * variance, max_iter=_MOST_STEPS, random_state=seed
    )
    with warnings.catch_warnings():
        # a start, not a result: the steps that it was given are enough to tell clusters apart
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(some)
    return np.asarray(mixture.predict(features), dtype=np.int64)


def in_unit_range(features: np.ndarray) -> np.ndarray:
    """Features (n, d) as float32 that clusters may be sought in, in any unit: centred, divided by one number for all.

    Squares of 1e30 overflow, and digits of 1e12 + 1 get lost. Once for all restarts on the same features.
    """
    centred = features - features.mean(axis=0, dtype=np.float64)
    return np.asarray(centred / (np.abs(centred).max() or 1.0)).astype(np.float32)


def _are_few(features: np.ndarray, k: int) -> bool:
    """Whether there are at most k different rows; of one column that is told far sooner, and mostly enough."""
    return np.unique(features[:, 0]).size <= k and np.unique(features, axis=0).shape[0] <= k


def _some(features: np.ndarray, seed: int) -> np.ndarray:
    n = features.shape[0]
    if n <= _LEARNT_FROM:
        return features
    return features[np.sort(np.random.default_rng(seed).choice(n, _LEARNT_FROM, replace=False))]
