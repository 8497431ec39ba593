"""Features rotated and scaled so that noise within clusters is alike in all directions."""

import numpy as np

__all__ = ["noise_rotation"]

_SHRUNK = 1e-3  # weight of a sphere in the covariance: directions without noise would be scaled without bound


def noise_rotation(features: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    """Matrix W (d, d) such that ``features @ W`` has the unit matrix as its pooled covariance within clusters.

    The model's Sigma0 is diagonal; in these coordinates a full one is. W = V diag(1/sqrt(w)) with the eigenvalues w and
    eigenvectors V of the pooled covariance, the noisiest direction last, each with its largest entry positive. Call
    inside `spatialpdvi.runtime.threads.single_threaded`.

    Parameters
    ----------
    features
        (n, d) dense.
    labels
        (n,) in 0..k-1.
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
    if spherical == 0.0:  # as many clusters as spots: there is no noise to go by
        return np.eye(d)
    values, vectors = np.linalg.eigh((1.0 - _SHRUNK) * within + _SHRUNK * spherical * np.eye(d))
    vectors *= np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(d)])
    return np.asarray(vectors / np.sqrt(values))
