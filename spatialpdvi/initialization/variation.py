r"""Compositions that vary within domains: which of several fits with nearly the same F to prefer (C14).

F has one composition for a whole domain. A thick layer of tissue is not composed alike throughout; to F, two halves of
it that differ a little are worth as much as a thin layer that differs a lot, since the halves have more spots. If a
composition may vary smoothly in space at a price, a halved layer gains little that its variation does not give, while
two layers that differ at a sharp border cannot be explained by it.

The variation is fitted to the labels of a fit, which are held: it takes about as long as that fit. Fitted together with
posteriors it takes thirty times as long, and prefers the same fits.
"""

from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.special import softmax

from spatialpdvi.initialization.restarts import kmeans_labels
from spatialpdvi.kernels.search import compose, varied_statistics
from spatialpdvi.problems.composition import StateLikelihoods
from spatialpdvi.problems.potts_mixture import one_hot

__all__ = ["change_by_variation", "smooth_functions"]

_CENTRES = 24  # of the functions. Between 12 and 40 they do not change which fits are right (docs/lab_notebook.md)
_SPREAD = 0.5  # s: standard deviation of the logarithm of a state's share within a domain, before it is fitted
_SPOTS_EACH = 40  # of a centre. With fewer, variation is chance; fewer centres are as wide as domains, and imitate them
_CONSTANT = 12  # steps of the constant compositions
_STEPS = 8  # of the compositions that vary: what further steps gain is the same for all fits
_DAMPED = 0.6  # of a step of the slopes: its curvature is that of a mean over the domain
_LEAST = 1e-6


def smooth_functions(coordinates: np.ndarray) -> np.ndarray:
    """Return G (n, b): functions of a Gaussian process with a variance of 1, as wide as its centres are apart.

    There are none, and compositions cannot vary, in a section of fewer than 960 spots, or where all are in one place.

    Call inside `spatialpdvi.runtime.threads.single_threaded`.

    Parameters
    ----------
    coordinates
        (n, 2) or (n, 3), any unit.
    """
    n, none = coordinates.shape[0], np.zeros((coordinates.shape[0], 0))
    if n < _SPOTS_EACH * _CENTRES:
        return none
    labels = kmeans_labels(coordinates, _CENTRES, seed=0)
    centres = np.array([coordinates[labels == label].mean(axis=0) for label in np.unique(labels)])
    if centres.shape[0] == 1:
        return none
    width = float(np.median(cKDTree(centres).query(centres, 2)[0][:, 1]))

    def covariance(places: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(-0.5 * cdist(places, centres, "sqeuclidean") / width**2))

    values, vectors = np.linalg.eigh(covariance(centres) + 1e-4 * np.eye(centres.shape[0]))
    return np.asarray(covariance(coordinates) @ (vectors / np.sqrt(values)))


def change_by_variation(
    relative: np.ndarray, functions: np.ndarray, labels: np.ndarray, k: int, prior_weight: np.ndarray
) -> float:
    """Return the change of F where the compositions of domains vary within them, with labels held (C14).

    Call inside `spatialpdvi.runtime.threads.single_threaded`.

    Parameters
    ----------
    relative
        (n, C) likelihood of each spot in each state, relative to its likeliest state.
    functions
        G (n, b), from `smooth_functions`.
    labels
        (n,) in 0..k-1.
    k
        K.
    prior_weight
        a (C,).
    """
    domains = _Domains(relative, labels, k, prior_weight)
    composition, constant = domains.constant(steps=_CONSTANT)
    return domains.fit(functions, np.log(composition), steps=_STEPS).value - constant


class _Varied(NamedTuple):
    """Compositions ``softmax(theta_k + sum_b G_ib w_kb)`` of given domains."""

    theta: np.ndarray  # (K, C)
    slopes: np.ndarray  # w (K, b, C)
    value: float  # what is minimised, nats


class _Domains(NamedTuple):
    """Domains that are given, as `change_by_variation` has them."""

    relative: np.ndarray
    labels: np.ndarray
    k: int
    prior_weight: np.ndarray

    def constant(self, *, steps: int) -> tuple[np.ndarray, float]:
        """Return compositions (K, C) that do not vary, and what is minimised: steps of (C5) from equal shares.

        It is what `fit` does without functions, in a seventh of the time.
        """
        n, n_states = self.relative.shape
        composition, phi = np.full((self.k, n_states), 1.0 / n_states), one_hot(self.labels, self.k)
        states, mixed = StateLikelihoods(self.relative, np.zeros(n)), np.empty(phi.shape)
        for _ in range(steps):
            states.of_domains(composition, out=mixed)
            compose(self.relative, self.prior_weight, phi, mixed, composition)
        logs = states.domain_term(composition, out=mixed)[np.arange(n), self.labels].sum()
        return composition, -float(logs + (self.prior_weight * np.log(composition)).sum())

    def fit(self, functions: np.ndarray, theta: np.ndarray, *, steps: int) -> _Varied:
        """Minimise over theta and slopes in turn, with the states of spots at their optimum (EM).

        Theta is scaled so that each state is expected as often as it is found (iterative proportional fitting, which
        with no functions is (C5)). The slopes take damped Newton steps, whose Hessian is the Kronecker product of the
        functions' products within the domain and of the mean share of each state among its own spots.
        """
        k, a, precision = self.k, self.prior_weight, 1.0 / _SPREAD**2
        functions = np.ascontiguousarray(functions)
        slopes = np.zeros((k, functions.shape[1], a.size))
        found, expected, squares, gradient = *(np.empty((k, a.size)) for _ in range(3)), np.empty(slopes.shape)
        within = [functions[self.labels == domain] for domain in range(k)]
        values, vectors = np.linalg.eigh(np.array([own.T @ own for own in within]))
        given = (self.relative, functions, self.labels)
        for step in range(steps + 1):
            logs = varied_statistics(*given, theta, slopes, found, expected, squares, gradient)
            share = softmax(theta, axis=1)
            value = -logs - float((a * np.log(share)).sum()) + 0.5 * precision * float((slopes**2).sum())
            if step < steps:
                theta = theta + np.log(found + a) - np.log(expected + a.sum() * share)
                own_share = np.maximum(squares / np.maximum(expected, _LEAST), _LEAST)
                curvature = values[:, :, None] * own_share[:, None, :] + precision
                downhill = vectors.transpose(0, 2, 1) @ (gradient - precision * slopes)
                slopes = slopes + _DAMPED * (vectors @ (downhill / curvature))
        return _Varied(theta, slopes, value)
