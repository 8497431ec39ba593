"""The start of a mixture of compositions: its states, and the domains with the lowest F that a search finds."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax

from spatialpdvi.initialization.consensus import consensus, renumbered, vote_shares
from spatialpdvi.initialization.landscape import Fit, Landscape, Places, lacking
from spatialpdvi.initialization.search import Found, composition_labels, lowest
from spatialpdvi.initialization.start import Start
from spatialpdvi.initialization.states import States, posterior_without_domains
from spatialpdvi.metrics.clustering import adjusted_rand_index
from spatialpdvi.options.states import ONE_BY_ONE, SAMPLED_FROM, SMALL
from spatialpdvi.problems.composition import CompositionGlobals, composed
from spatialpdvi.problems.features import wrap_features
from spatialpdvi.problems.potts_mixture import data_term as state_term
from spatialpdvi.problems.potts_mixture import one_hot
from spatialpdvi.runtime.rows import slices
from spatialpdvi.runtime.threads import on_threads, own_loops_on_all_threads

__all__ = [
    "RESTARTS",
    "Sample",
    "Searched",
    "landscape_of",
    "search_compositions",
    "search_sets",
    "settle_labels",
    "start_from_composition",
]

_PRIOR = 1e-3  # of the number of spots: the weight of a domain's prior, in spots
RESTARTS = 6  # of the given labels that are searched from, besides the first
_SWEEPS = 5
_AGREEING = 3  # of the given labels from which brief fits start
_FEW = 4  # rounds of such a fit
_AT_ONCE = 2  # such fits at a time: each has several posteriors of the whole section in memory
_VOTES = 2  # of the search of a sample, beside one of each brief fit


class Sample(NamedTuple):
    """Spots of a large section, joined as if there were no others."""

    spots: np.ndarray  # (m,) ascending
    graph: sp.csr_matrix  # (m, m) weights of the edges


class Searched(NamedTuple):
    """What a search found with one set of states, and where."""

    start: Start
    found: Found
    landscape: Landscape


def search_sets(
    sets: Sequence[States],
    coordinates: np.ndarray,
    graphs: Sequence[sp.csr_matrix],
    k: int,
    *,
    labels: Sequence[np.ndarray],
    rounds: int,
    seed: int,
    sample: Sample | None = None,
) -> tuple[int, Start, Found]:
    """Search with several sets of states, and return the number of the set that is nearest to their consensus, with it.

    F of different states cannot be compared, but the consensus of the domains that they give varies less from seed to
    seed than those of one set do, and is right more often than the average of them. Searches know nothing of each
    other: where each takes the domains of another that have a lower F with its own states, all end in the same ones,
    and their number no longer matters (docs/lab_notebook.md). Only those vote that lack as many domains as most of them
    do. Where their consensus lacks more domains than the nearest search does, before or after it is fitted, because the
    searches disagree on small ones, the domains of that search are returned. In sections that are not small, all vote,
    brief fits (`_brief_starts`) do so as well, and the consensus is returned always. What is found has the mean of all
    searches' posteriors, each matched to the domains of the start.

    Parameters
    ----------
    sets
        Of the same section, learnt with different seeds; one alone where a sample is searched.
    graphs
        Symmetric CSR (n, n) of the edges' weights, one for each set.
    coordinates
        (n, 2) or (n, 3), any unit.
    k, labels, rounds, seed, sample
        As for `search_compositions`.
    """
    places = Places(coordinates)
    if sample is not None:
        with own_loops_on_all_threads():
            only = search_compositions(
                sets[0], places, graphs[0], k, labels=labels, rounds=rounds, seed=seed, sample=sample
            )
        return 0, only.start, only.found

    def search(own: int) -> Searched:
        return search_compositions(sets[own], places, graphs[own], k, labels=labels, rounds=rounds, seed=seed)

    results = on_threads(search, range(len(sets)), at_once=1 if places.n < ONE_BY_ONE else None)
    is_small = places.n <= SMALL
    voting = _of_one_number(results) if is_small else range(len(results))
    votes = [results[own].start.labels for own in voting]
    if not is_small:
        votes += _brief_labels(results[0].landscape, labels, seed=seed)
    agreed = consensus(votes, k).labels
    nearest = max(voting, key=lambda own: adjusted_rand_index(agreed, results[own].start.labels))
    start, found = results[nearest].start, [own.found for own in results]
    if not is_small or _keeps_domains(agreed, results[nearest], fitted=rounds > 0):
        start = start_from_composition(sets[nearest], agreed, k)
    return (
        nearest,
        start,
        found[nearest]._replace(
            n_proposed=sum(own.n_proposed for own in found),
            n_accepted=sum(own.n_accepted for own in found),
            posterior=_mean_posterior(found, start.labels),
        ),
    )


def search_compositions(
    states: States,
    places: Places,
    graph: sp.csr_matrix,
    k: int,
    *,
    labels: Sequence[np.ndarray],
    rounds: int,
    seed: int,
    sample: Sample | None = None,
) -> Searched:
    """Search for the domains with the lowest F, of all spots or of a sample of a large section.

    Call inside `spatialpdvi.runtime.threads.single_threaded`.

    Parameters
    ----------
    states
        Of the section.
    places
        Of its spots.
    graph
        Symmetric CSR (n, n) of the edges' weights.
    k
        K.
    labels
        (n,) each: labels to start from, besides those that averaged compositions give. The first are the consensus of
        the others, of which some are taken.
    rounds, seed
        As for `spatialpdvi.initialization.search.lowest`.
    sample
        Spots of a large section: these alone are searched, and brief fits of all spots are made besides (`_agreed`).
    """
    rng = np.random.default_rng(seed)
    given = _mixed(labels, rng)[: 1 + RESTARTS]
    of_starts, of_search, of_brief = (int(one) for one in rng.integers(2**32, size=3))

    def searched(landscape: Landscape, spots: np.ndarray | slice) -> Found:
        starts = composition_labels(landscape, seed=of_starts) + [own[spots].astype(np.int64) for own in given]
        return lowest(landscape, starts, rounds=rounds, seed=of_search)

    landscape = landscape_of(states, places, graph, k)
    if sample is None:
        found = searched(landscape, slice(None))
    else:
        part = landscape_of(states, places, sample.graph, k, spots=sample.spots)
        found = _agreed(landscape, given, lambda: searched(part, sample.spots), seed=of_brief)
    return Searched(_start(states, found.labels, found.composition), found, landscape)


def _agreed(
    landscape: Landscape, labels: Sequence[np.ndarray], search_sample: Callable[[], Found], *, seed: int
) -> Found:
    """What brief fits of all spots agree on, or one of them that has a lower F and lacks no more domains.

    They are made from labels (`_brief_starts`), and from the compositions that a search of the sample has found. Starts
    err in different places, and a few rounds take each to the optimum of F near it. The search of a sample is right
    more often than a single start, and has two votes of eight: with half of them, domains that the sample lacks would
    be lost. What is found has the shares of the votes as its posterior, since their disagreement says where other
    answers are about as good.
    """
    k, small = landscape.k, np.min_scalar_type(landscape.k - 1)
    starts = _brief_starts(landscape, labels, seed=seed)

    def brief(start: np.ndarray | None) -> tuple[Fit, Found | None]:
        """A fit without its posteriors, from labels or from the sample."""
        found = search_sample() if start is None else None
        if found is None:
            assert start is not None
            fit = landscape.fit(start[landscape.order], rounds=_FEW)
        else:
            fit = landscape.fit_from(found.composition, rounds=_FEW)
        return fit._replace(phi=np.empty((0, k)), labels=fit.labels.astype(small)), found

    (of_sample, found), *others = on_threads(brief, [None, *starts], at_once=_AT_ONCE)
    assert found is not None
    fits = [of_sample, *(fit for fit, _ in others)]
    votes = [of_sample.labels] * (_VOTES - 1) + [fit.labels for fit in fits]
    fit = landscape.fit(consensus(votes, k).labels, rounds=_FEW)
    # where domains are easy to tell apart, a single fit may be better than what all agree on
    better = [own for own in fits if own.neg_elbo < fit.neg_elbo and lacking(own.labels, k) <= lacking(fit.labels, k)]
    fit = min(better, key=lambda own: own.neg_elbo, default=fit)
    return found._replace(
        labels=landscape.as_given(fit.labels.astype(np.int64)),
        composition=fit.composition,
        started_at=min(own.neg_elbo for own in fits),
        ended_at=fit.neg_elbo,
        posterior=landscape.as_given(vote_shares(votes, fit.labels, k)),
    )


def _mixed(labels: Sequence[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    """The first of the labels, which the others agree on, and these in random order."""
    return [labels[i] for i in (0, *rng.permutation(np.arange(1, len(labels))))]


def _brief_starts(landscape: Landscape, labels: Sequence[np.ndarray], *, seed: int) -> list[np.ndarray]:
    """Labels (n,) to start brief fits from: the first of those given, and of compositions averaged at each scale."""
    return [own.astype(np.int64) for own in labels[:_AGREEING]] + composition_labels(landscape, seed=seed, each=1)


def _brief_labels(landscape: Landscape, labels: Sequence[np.ndarray], *, seed: int) -> list[np.ndarray]:
    """Labels (n,) of brief fits, where the given labels are the consensus of restarts, and these."""
    rng = np.random.default_rng(seed)
    starts = _brief_starts(landscape, _mixed(labels, rng), seed=int(rng.integers(2**32)))

    def brief(start: np.ndarray) -> np.ndarray:
        return landscape.as_given(landscape.fit(start[landscape.order], rounds=_FEW).labels)

    return on_threads(brief, starts, at_once=_AT_ONCE)


def _of_one_number(results: Sequence[Searched]) -> list[int]:
    """The searches that lack as many domains as most of them do, or as the fewest where as many do.

    Were all merged, the others would fill the classes that these have no use for.
    """
    n_lacking = np.array([lacking(own.start.labels, own.landscape.k) for own in results])
    most_frequent = np.bincount(n_lacking).argmax()
    return [int(own) for own in np.flatnonzero(n_lacking == most_frequent)]


def _keeps_domains(agreed: np.ndarray, own: Searched, *, fitted: bool) -> bool:
    """Whether a consensus (n,) lacks no more domains than a search found, also after it is fitted with its states.

    A domain on which searches half agree may vanish in the fit, over hundreds of epochs.
    """
    landscape, most = own.landscape, lacking(own.start.labels, own.landscape.k)
    if lacking(agreed, landscape.k) > most:
        return False
    return not fitted or lacking(landscape.fit(agreed[landscape.order]).labels, landscape.k) <= most


def landscape_of(
    states: States, places: Places, graph: sp.csr_matrix, k: int, *, spots: np.ndarray | None = None
) -> Landscape:
    """Return the landscape of a section, or of some of its spots.

    Parameters
    ----------
    states, places
        Of the section.
    graph
        Symmetric CSR of the weights of the edges between these spots.
    k
        K.
    spots
        (m,) ascending; all by default.
    """
    dtype, prior_weight = np.float32 if places.n >= SAMPLED_FROM else np.float64, _prior_weight(states)
    if spots is None:
        return Landscape(_likelihood(states, dtype=dtype), places, graph, k, prior_weight)
    likelihood = _likelihood(states, spots, dtype=dtype)
    share = spots.size / places.n  # of the prior too, so that F of the spots is this part of the section's
    return Landscape(likelihood, places.of(spots), graph, k, share * prior_weight)


def start_from_composition(states: States, labels: np.ndarray, k: int) -> Start:
    """Return the start with given domains; its compositions are those of the spots' states without domains.

    Call inside `spatialpdvi.runtime.threads.single_threaded`.

    Parameters
    ----------
    states
        Of the section.
    labels
        (n,) in 0..k-1.
    k
        K.
    """
    found = sum(
        one_hot(labels[rows], k).T @ posterior_without_domains(_likelihood(states, rows), states.share)
        for rows in slices(labels.size)
    )
    return _start(states, labels, composed(np.asarray(found), _prior_weight(states)))


def settle_labels(data_term: np.ndarray, graph: sp.csr_matrix) -> np.ndarray:
    """Return the likeliest domains (n,) after a few mean-field updates of all spots at once.

    What one spot alone says about its domain is little; a solver that started from it would keep many of its errors.

    Parameters
    ----------
    data_term
        b (n, K).
    graph
        Symmetric CSR (n, n) of the edges' weights.
    """
    blocks = list(slices(data_term.shape[0]))
    phi = np.empty_like(data_term)
    for rows in blocks:
        phi[rows] = softmax(data_term[rows], axis=1)
    for _ in range(_SWEEPS):
        old, phi = phi, np.empty_like(phi)
        for rows in blocks:
            phi[rows] = 0.5 * (old[rows] + softmax(data_term[rows] + graph[rows] @ old, axis=1))
    return np.asarray(phi.argmax(axis=1))


def _mean_posterior(results: Sequence[Found], reference: np.ndarray) -> np.ndarray:
    """Mean posterior (n, K) of several searches in the numbers of a reference (n,)."""
    mean = np.zeros_like(results[0].posterior)
    for found in results:
        mean += renumbered(found.posterior, found.labels, reference) / len(results)
    return mean


def _start(states: States, labels: np.ndarray, composition: np.ndarray) -> Start:
    prior_weight = _prior_weight(states)
    spots = np.bincount(labels, minlength=composition.shape[0]) + prior_weight.sum()
    theta = np.log(spots[:, None] * np.maximum(composition, 1e-12))
    return Start(labels, CompositionGlobals(*states.lam, theta), states.hyperparameters, prior_weight)


def _prior_weight(states: States) -> np.ndarray:
    """The weights a (C,): composed as the section is, and in all a thousandth of its spots, at least one.

    That is little beside any domain, but enough for the composition of a domain that has lost its spots. Each spot
    belongs to it with a probability of about a thousandth; with a prior of one spot, its composition takes hundreds of
    epochs to come to rest.
    """
    share = np.maximum(states.share, 1e-6)
    weight = max(1.0, _PRIOR * states.features.shape[0])
    return np.asarray(weight * share / share.sum())


def _likelihood(
    states: States, spots: np.ndarray | slice = slice(None), *, dtype: type[np.floating[Any]] = np.float64
) -> np.ndarray:
    """Likelihood (n, C) of each spot, or of some (m,), in each state, relative to its likeliest."""
    features, noise = states.features[spots], 1.0 / states.hyperparameters.noise_sd**2
    likelihood = np.empty((features.shape[0], states.share.size), dtype=dtype)
    for rows in slices(features.shape[0]):
        logs = state_term(wrap_features(features[rows]), states.lam, noise)
        logs -= logs.max(axis=1, keepdims=True)
        likelihood[rows] = np.exp(logs, out=logs)
    return likelihood
