"""Cell states that domains share, learnt from single spots: the states of a mixture of compositions."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spatialpdvi.features.projection import OutlierLimit, learn_limit
from spatialpdvi.initialization.clustering import Mixture, fit_mixture
from spatialpdvi.initialization.restarts import LEARNT_FROM, subset
from spatialpdvi.problems.potts_mixture import Hyperparameters, PottsGlobals, nearest_domain
from spatialpdvi.runtime.rows import slices

__all__ = ["States", "ambiguity", "are_distinct", "learn_states"]

# Real sections whose counts are at hand lie below .19, components of noisy genes and spots with few counts above .38;
# there, averages over neighbours are right more often (docs/lab_notebook.md)
_MOST_AMBIGUOUS = 0.25
_RIDGE = 1e-6  # of the mean variance, on the covariance's diagonal: columns may be constant or collinear


class States(NamedTuple):
    """States of a section, and its features in the coordinates in which the noise within states is 1."""

    features: np.ndarray  # (n, d) x, float32: drawn in, rotated and scaled
    limit: OutlierLimit  # to which far spots are drawn in
    rotation: np.ndarray  # (d, d) W, which is applied after that
    lam: PottsGlobals  # m and rho (C, d)
    hyperparameters: Hyperparameters
    share: np.ndarray  # (C,) of the section's spots
    distance: np.ndarray  # (n,) of spots to the nearest state, in noise sd, as they are without being drawn in
    ambiguity: float  # the part of the uncertainty about a spot's state that its features leave, in [0, 1]


def ambiguity(sets: Sequence[States]) -> float:
    """Return the median ambiguity of several sets of states."""
    return float(np.median([states.ambiguity for states in sets]))


def are_distinct(sets: Sequence[States]) -> bool:
    """Whether single spots tell the states of most sets apart, well enough for compositions."""
    return ambiguity(sets) < _MOST_AMBIGUOUS


def learn_states(features: np.ndarray, n_states: int, *, seed: int) -> States:
    """Learn states as a Gaussian mixture with one common ("tied") covariance.

    Spots far from all others would each become a state of their own, and leave none for the tissue. They are drawn in
    first (`OutlierLimit`). Call inside
    `spatialpdvi.runtime.threads.single_threaded`: sums depend on the number of threads.

    Parameters
    ----------
    features
        (n, d) dense, not averaged over neighbours; the mixture is learnt from at most 20,000 spots.
    n_states
        C.
    seed
        Of the mixture and of the spots that it is learnt from.
    """
    limit = learn_limit(features)
    some = limit.apply(subset(features, LEARNT_FROM, seed))
    variance = float(some.var(axis=0).mean())
    mixture = fit_mixture(some, n_states, seed=seed, ridge=_RIDGE * variance if variance else 1.0)
    values, vectors = np.linalg.eigh(mixture.covariance)
    vectors *= np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(values.size)])
    rotation = vectors / np.sqrt(values)
    means, share = mixture.means @ rotation, mixture.weights
    centre = share @ means
    spread = np.sqrt(np.maximum(share @ (means - centre) ** 2, 1e-6))
    hyperparameters = Hyperparameters(np.ones(values.size), spread, centre)
    precision = features.shape[0] * share[:, None] + 1.0 / spread**2
    lam = PottsGlobals(means, -np.log(precision))
    fitted, distance = np.empty(features.shape, dtype=np.float32), np.empty(features.shape[0])
    for rows in slices(features.shape[0]):
        fitted[rows] = limit.apply(features[rows]) @ rotation
        distance[rows] = nearest_domain((features[rows] - limit.centre) @ rotation, lam, hyperparameters)
    return States(fitted, limit, rotation, lam, hyperparameters, share, distance, _ambiguity(mixture, some))


def _ambiguity(mixture: Mixture, features: np.ndarray) -> float:
    """``H(s | x) / H(s)`` of the mixture: 0 where features decide the state of every spot, 1 where they say nothing."""
    share = mixture.weights[mixture.weights > 0]
    prior = -float(share @ np.log(share))
    posterior = mixture.posterior(features)
    left = -float(np.mean(np.sum(posterior * np.log(np.maximum(posterior, 1e-300)), axis=1)))
    return left / prior if prior > 0 else 1.0
