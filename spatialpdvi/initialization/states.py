"""Cell states that domains share, learnt from single spots: the states of a mixture of compositions."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import softmax

from spatialpdvi.features.projection import OutlierLimit, learn_limit
from spatialpdvi.features.smoothing import neighbor_averages
from spatialpdvi.features.trends import Covariates, shared_trend
from spatialpdvi.graph.neighbors import nearest_spots
from spatialpdvi.initialization.clustering import Mixture, fit_mixture, mixture_of
from spatialpdvi.initialization.communities import communities, shared_neighbors
from spatialpdvi.initialization.restarts import LEARNT_FROM, RIDGE, kmeans_labels, subset
from spatialpdvi.initialization.start import whitening
from spatialpdvi.kernels.posteriors import LEAST
from spatialpdvi.problems.features import wrap_features
from spatialpdvi.problems.potts_mixture import (
    Hyperparameters,
    PottsGlobals,
    data_term,
    log_variance,
    nearest_domain,
    one_hot,
)
from spatialpdvi.runtime.rows import slices, some_rows

__all__ = [
    "States",
    "ambiguity",
    "are_distinct",
    "distinctness",
    "learn_states",
    "means_of_spots",
    "posterior_without_domains",
    "state_posterior",
    "states_of_communities",
    "told_of_neighbors",
    "trends_within",
    "why_unfit",
]

# Real sections whose counts are at hand lie below .19, components of noisy genes and spots with few counts above .38;
# there, averages over neighbours are right more often (docs/lab_notebook.md)
_MOST_AMBIGUOUS = 0.25
# Below both, real sections that were thinned are better as averages over neighbours (docs/lab_notebook.md)
_ENOUGH = 100  # molecules of a spot, in the median: states need not tell of their neighbours'
_LEAST_TOLD = 0.1  # nats
_AROUND = 10  # nearest spots whose states are compared with a spot's own
_FEWEST = 100  # spots of a section, or of a kind of neighbourhood: fewer have no trend of their own
_NEIGHBORHOOD = 30  # spots, besides the one in the middle


class States(NamedTuple):
    """States of a section, and its features in the coordinates in which the noise within states is 1."""

    features: np.ndarray  # (n, d) x, float32: drawn in, rotated and scaled
    limit: OutlierLimit  # to which far spots are drawn in
    rotation: np.ndarray  # (d, d) W, which is applied after that
    lam: PottsGlobals  # m and rho (C, d)
    hyperparameters: Hyperparameters
    share: np.ndarray  # (C,) of the section's spots
    given: np.ndarray  # (n, d) what the states were learnt from, with far spots where they are
    ambiguity: float  # the part of the uncertainty about a spot's state that its features leave, in [0, 1]
    detrended: float = 0.0  # the part of the variance within states that trends explained, and that was removed

    @property
    def distance(self) -> np.ndarray:
        """That of each spot (n,) to the nearest state, in noise sd, where far spots are not drawn in."""
        distance = np.empty(self.given.shape[0])
        for rows in slices(distance.size):
            placed = (self.given[rows] - self.limit.centre) @ self.rotation
            distance[rows] = nearest_domain(placed, self.lam, self.hyperparameters)
        return distance


def ambiguity(sets: Sequence[States]) -> float:
    """Return the median ambiguity of several sets of states."""
    return float(np.median([states.ambiguity for states in sets]))


def are_distinct(sets: Sequence[States]) -> bool:
    """Whether single spots tell the states of most sets apart, well enough for compositions."""
    return ambiguity(sets) < _MOST_AMBIGUOUS


def told_of_neighbors(
    sets: Sequence[States], coordinates: np.ndarray, *, samples: Sequence[np.ndarray], seed: int
) -> float:
    """Return how much the state of a spot tells of those of the ten nearest: the mutual information, in nats.

    It is the median of several sets of states. Call inside `spatialpdvi.runtime.threads.single_threaded`.

    Parameters
    ----------
    sets
        Of the same spots.
    coordinates
        (n, 2) or (n, 3), any unit.
    samples
        Spots of each section: neighbours are of the same one.
    seed
        Of the spots, at most 20,000, at which states are compared.
    """
    is_used = np.zeros(coordinates.shape[0], dtype=bool)
    is_used[subset(np.arange(coordinates.shape[0]), seed)] = True
    joint = np.zeros((len(sets), *2 * sets[0].share.shape))
    for spots in samples:
        used = np.flatnonzero(is_used[spots])
        near = spots[nearest_spots(cKDTree(coordinates[spots]), used, _AROUND)]
        if not near.size:
            continue
        rows, where = np.unique(near, return_inverse=True)  # a spot is near to several
        for number, states in enumerate(sets):
            own = state_posterior(states.features[spots[used]], states.lam, states.share)
            around = state_posterior(states.features[rows], states.lam, states.share)[where.reshape(near.shape)]
            joint[number] += own.T @ around.mean(axis=1)
    return float(np.median([_mutual_information(own) for own in joint]))


def distinctness(sets: Sequence[States]) -> str:
    """Return in words whether single spots tell the states of several sets apart, and how ambiguous these are."""
    tell = "tell" if are_distinct(sets) else "do not tell"
    return f"single spots {tell} states apart ({ambiguity(sets):.0%} ambiguous)"


def why_unfit(
    sets: Sequence[States],
    coordinates: np.ndarray,
    samples: Sequence[np.ndarray],
    totals: np.ndarray | None,
    *,
    seed: int,
) -> str:
    """Return in words why domains should not be compositions of such states; "" where nothing is against it.

    Either single spots do not tell the states apart; or spots have few molecules, and their states tell too little of
    those of their neighbours. Then states are distinct by the genes that happened to be counted.

    Parameters
    ----------
    sets, coordinates, samples, seed
        As for `told_of_neighbors`.
    totals
        (n,) molecules of each spot; None where they are not known.
    """
    if not are_distinct(sets):
        return distinctness(sets)
    if totals is None or np.median(totals) >= _ENOUGH:
        return ""
    told = told_of_neighbors(sets, coordinates, samples=samples, seed=seed)
    return "" if told >= _LEAST_TOLD else f"a spot's state tells {told:.2f} nats of those of its neighbours"


def learn_states(features: np.ndarray, n_states: int, *, seed: int, limit: OutlierLimit | None = None) -> States:
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
    limit
        From `learn_limit` of the features, where several mixtures of them are learnt; by default it is determined.
    """
    limit = limit or learn_limit(features)
    some = limit.apply(subset(features, seed))
    return _states(features, limit, fit_mixture(some, n_states, seed=seed, ridge=_ridge(some)), some)


def states_of_communities(features: np.ndarray, n_states: int, *, seeds: Sequence[int]) -> list[States] | None:
    """Learn a set of states for each seed, as communities of spots with like features (`communities`).

    The states are Gaussians with one covariance, as those of `learn_states`, but maximise no likelihood: they differ
    far less from seed to seed. Call inside `spatialpdvi.runtime.threads.single_threaded`.

    Parameters
    ----------
    features, n_states
        As for `learn_states`.
    seeds
        Of the order in which communities are made, and of the spots that they are made of.

    Returns
    -------
    list or None
        None where there are not as many communities, as where most spots are equal.
    """
    limit, resolution = learn_limit(features), 1.0
    sets: list[States] = []
    for seed in seeds:
        if not sets or features.shape[0] > LEARNT_FROM:  # otherwise all sets have the same spots
            some = limit.apply(subset(features, seed))
            graph = shared_neighbors(some)
        found = communities(graph, some, n_states, seed=seed, resolution=resolution)
        if found is None:
            return None
        labels, resolution = found
        sets.append(_states(features, limit, mixture_of(some, labels, n_states, ridge=_ridge(some)), some))
    return sets


def posterior_without_domains(likelihood: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return each spot's posterior over states (n, C), from likelihoods (n, C) and the shares (C,) of the states."""
    posterior = likelihood * share
    posterior /= posterior.sum(axis=1, keepdims=True)
    return posterior


def state_posterior(features: np.ndarray, lam: PottsGlobals, share: np.ndarray) -> np.ndarray:
    """Return the posterior (n, C) over states with shares (C,), which need not sum to 1, or of each spot (n, C).

    Parameters
    ----------
    features
        (n, d) in the coordinates of the states, in which their noise is 1.
    lam
        m and rho (C, d) of the states.
    share
        Up to a factor.
    """
    logs = data_term(wrap_features(features), lam, np.ones(features.shape[1]))
    return np.asarray(softmax(logs + np.log(np.maximum(share, LEAST)), axis=1))


def means_of_spots(features: np.ndarray, lam: PottsGlobals, share: np.ndarray) -> np.ndarray:
    """Return the means (C, d) of at most 20,000 spots, weighed by their posterior of a state; m where it has no spots.

    They differ from m, of which spots are Gaussian for the model alone. Call inside
    `spatialpdvi.runtime.threads.single_threaded`.

    Parameters
    ----------
    features, lam, share
        As for `state_posterior`.
    """
    some = subset(features, 0)
    posterior = state_posterior(some, lam, share)
    sums, sizes = posterior.T @ some, posterior.sum(axis=0)
    has_spots = sizes > LEAST
    return np.where(has_spots[:, None], sums / np.where(has_spots, sizes, 1.0)[:, None], lam.m)


def trends_within(
    features: np.ndarray,
    lam: PottsGlobals,
    share: np.ndarray,
    covariates: Covariates,
    *,
    n_kinds: int,
    seed: int,
) -> list[np.ndarray]:
    """Return the trend (p, d) of each section within given states; 0 where a section has fewer than 100 spots.

    Spots are compared with others of the same state in the same kind of neighbourhood. Call inside
    `spatialpdvi.runtime.threads.single_threaded`.

    Parameters
    ----------
    features, lam, share
        As for `state_posterior`.
    covariates
        Of the spots.
    n_kinds
        Of neighbourhoods, at most; fewer where a section has not 100 spots for each.
    seed
        Of the spots from which trends are learnt, and of the kinds. They are at most 20,000 in all, or 100 of each
        section for each kind where these are more.
    """
    n, d = features.shape
    trends = []
    for spots in covariates.sections:
        # of many sections, the part of each that makes 20,000 spots is few
        part = -(-min(n, LEARNT_FROM) * spots.size // n)
        used = some_rows(spots, seed, max(part, n_kinds * _FEWEST))
        if used.size < _FEWEST:
            trends.append(np.zeros((covariates.values.shape[1], d)))
            continue
        x = features[used]
        posterior = state_posterior(x, lam, share)
        kinds = _kinds(posterior, covariates.coordinates[used], min(n_kinds, used.size // _FEWEST), seed=seed)
        groups = (kinds[:, :, None] * posterior[:, None, :]).reshape(used.size, -1)
        trends.append(shared_trend(x, groups, covariates.values[used]))
    return trends


def _states(features: np.ndarray, limit: OutlierLimit, mixture: Mixture, some: np.ndarray) -> States:
    """States that are the components of a mixture, which ``some`` of the spots, drawn in, were given."""
    rotation = whitening(mixture.covariance)
    means, share = mixture.means @ rotation, mixture.weights
    centre = share @ means
    spread = np.sqrt(np.maximum(share @ (means - centre) ** 2, 1e-6))
    hyperparameters = Hyperparameters(np.ones(centre.size), spread, centre)
    lam = PottsGlobals(means, log_variance(features.shape[0] * share, hyperparameters))
    fitted = np.empty(features.shape, dtype=np.float32)
    for rows in slices(features.shape[0]):
        fitted[rows] = limit.apply(features[rows]) @ rotation
    return States(fitted, limit, rotation, lam, hyperparameters, share, features, _ambiguity(mixture, some))


def _ridge(x: np.ndarray) -> float:
    """What is added to the diagonal of the covariance of x (n, d)."""
    variance = float(x.var(axis=0).mean())
    return RIDGE * variance if variance else 1.0


def _kinds(posterior: np.ndarray, coordinates: np.ndarray, n_kinds: int, *, seed: int) -> np.ndarray:
    """The kind of neighbourhood (n, kinds) of each spot, 0 or 1, by its composition of states.

    They stand for the domains, before any are known. Of a large section the spots are a sample, and neighbourhoods are
    wider.
    """
    (mean,) = neighbor_averages(posterior, coordinates, (_NEIGHBORHOOD,), samples=[np.arange(posterior.shape[0])])
    return one_hot(kmeans_labels(np.sqrt(mean), n_kinds, seed=seed), n_kinds)


def _mutual_information(joint: np.ndarray) -> float:
    """Mutual information of the row and the column of a table (p, q), up to a factor, in nats; 0 where it is empty."""
    total = joint.sum()
    if total == 0.0:
        return 0.0
    joint = joint / total
    apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    return float(np.sum(joint * np.log(np.maximum(joint, LEAST) / np.maximum(apart, LEAST))))


def _ambiguity(mixture: Mixture, features: np.ndarray) -> float:
    """``H(s | x) / H(s)`` of the mixture: 0 where features decide the state of every spot, 1 where they say nothing."""
    share = mixture.weights[mixture.weights > 0]
    prior = -float(share @ np.log(share))
    posterior = mixture.posterior(features)
    left = -float(np.mean(np.sum(posterior * np.log(np.maximum(posterior, LEAST)), axis=1)))
    return left / prior if prior > 0 else 1.0
