"""The evidence for every number of domains, where domains are compositions of states.

    1  fit more domains than any number that is asked about
    2  unite two domains, those that raise F least, and fit again, until one domain is left
    3  at each number, the complete bound: F with a Dirichlet posterior of each composition, and the normaliser of the
       Potts prior, which both depend on the number (E11)

Single spots are counted once here, so that this bound has a minimum, unlike that of features which are averaged over
neighbours. The model still takes the spots of a domain as alike up to chance. Tissue is not: large sections support
ever finer domains, with ever less evidence for each. A number is therefore recommended that has most of the evidence.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import digamma, gammaln

from spatialpdvi.graph.neighbors import along_longest_side
from spatialpdvi.initialization.compositions import landscape_of
from spatialpdvi.initialization.landscape import Fit, Landscape, Places, members
from spatialpdvi.initialization.search import composition_labels, unions
from spatialpdvi.initialization.states import States
from spatialpdvi.model_selection.bound import PottsNormaliser

__all__ = ["SPARE", "Level", "complete_evidence", "levels", "levels_of", "share_of_evidence", "strength_of_evidence"]

SPARE = 2  # domains of the first fit, more than the largest number; more domains than states would each be a state
_BRIEF = 25  # rounds of the first fits, before the best is continued
_TRIED = 2  # unions that are fitted at each number
_ROUNDS = 30  # with a Dirichlet posterior
_SAMPLED = 10_000  # spots at most that are looked at; of a larger section these are a sample
_PIECE = 150  # spots of one connected piece of it, at most
_SCALE = 30  # spots that compositions are averaged over for the domains of which a sample has pieces
_PRIOR = 1.0  # spots: a prior that grows with the section, as in a fit, would pay for domains that it resembles


class Level(NamedTuple):
    """One number of domains."""

    labels: np.ndarray  # (n,) in 0..k-1, of the spots that were looked at
    neg_evidence: float  # the complete bound without the terms of the states, which all numbers share; nats

    @property
    def k(self) -> int:
        """The number of domains that have spots."""
        return int(self.labels.max()) + 1


def levels(
    states: States, coordinates: np.ndarray, graph: sp.csr_matrix, most: int, *, seed: int
) -> tuple[np.ndarray, list[Level]]:
    """Return the spots that were looked at, and a level for numbers of domains from 1 up to at least ``most``.

    A number is missing where a fit of it leaves a domain empty. Call inside
    `spatialpdvi.runtime.threads.single_threaded`.

    Parameters
    ----------
    states, graph
        As for `spatialpdvi.initialization.compositions.landscape_of`.
    coordinates
        (n, 2) or (n, 3), any unit.
    most
        The largest number.
    seed
        Of the starts, and of the sample of a large section.
    """
    rng = np.random.default_rng(seed)
    k, places, spots = most + SPARE, Places(coordinates), np.arange(coordinates.shape[0])
    if spots.size > _SAMPLED:
        whole = landscape_of(states, places, graph, k)
        (labels,) = composition_labels(whole, seed=int(rng.integers(2**32)), scales=(_SCALE,), each=1)
        spots = _sample(coordinates, labels, rng)
        del whole
        graph = graph[spots][:, spots]
    landscape = landscape_of(states, places, graph, k, spots=spots).with_prior_of(_PRIOR)
    starts = composition_labels(landscape, seed=int(rng.integers(2**32)))
    first = [landscape.fit(labels[landscape.order], rounds=_BRIEF) for labels in starts]
    fit = landscape.go_on(min(first, key=lambda fit: fit.neg_elbo))
    normaliser = PottsNormaliser.of(landscape.graph, most=k, seed=seed)
    found = []
    while True:
        fit, landscape = _without_empty(landscape, fit)
        labels = landscape.as_given(fit.labels)
        found.append(Level(labels, complete_evidence(landscape, fit) + normaliser.log_partition(landscape.k)))
        if landscape.k == 1:
            return spots, found[::-1]
        costs = unions(landscape, fit)
        tried = [_united(landscape, fit, *pair) for pair in sorted(costs, key=costs.__getitem__)[:_TRIED]]
        fit = min(tried, key=lambda fit: fit.neg_elbo)
        landscape = landscape.with_domains(fit.phi.shape[1])


def _sample(coordinates: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """At most 10,000 spots (ascending) of a larger section, in connected pieces.

    Half of the pieces are random. Then each domain of the labels names one of its own in turn, which may be among them
    already, until there are enough: so none is missing.
    """
    pieces = [np.arange(coordinates.shape[0])]
    while pieces[0].size > _PIECE:
        pieces = [half for piece in pieces for half in _halves(coordinates, piece)]
    n_chosen = _SAMPLED // pieces[0].size
    order = rng.permutation(len(pieces))
    chosen = dict.fromkeys(order[: n_chosen // 2])
    main = np.array([np.bincount(labels[piece]).argmax() for piece in pieces])
    by_domain = [iter(order[main[order] == domain]) for domain in np.unique(main)]
    while len(chosen) < n_chosen:
        for turn in by_domain:
            chosen.update(dict.fromkeys([piece for piece in [next(turn, None)] if piece is not None]))
    return np.sort(np.concatenate([pieces[i] for i in list(chosen)[:n_chosen]]))


def _halves(coordinates: np.ndarray, piece: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A piece cut at the median of its longer side; the first half is never the smaller one."""
    ranked = along_longest_side(coordinates, piece)
    middle = -(-piece.size // 2)
    return ranked[:middle], ranked[middle:]


def complete_evidence(landscape: Landscape, fit: Fit) -> float:
    """Return F with the posterior Dirichlet(M_k + a) of each composition, after a few rounds from a fit; nats.

    ``E log pi_kc`` takes the place of ``log pi_kc`` in (C2), and the Kullback-Leibler divergence from the prior
    Dirichlet(a) that of the last term of (C3).
    """
    phi, shares = fit.phi.copy(), fit.composition
    prior = np.broadcast_to(landscape.prior_weight, shares.shape)
    for turn in range(_ROUNDS + 1):
        posterior = members(landscape.states, phi, shares) + prior
        logs = digamma(posterior) - digamma(posterior.sum(axis=1, keepdims=True))
        shares = np.exp(logs)
        data_term = landscape.states.domain_term(shares)
        if turn < _ROUNDS:
            landscape.sweep(phi, data_term)
    divergence = _log_beta(prior) - _log_beta(posterior) + ((posterior - prior) * logs).sum(axis=1)
    return landscape.term_of_spots(phi, data_term) + float(divergence.sum())


def levels_of(found: Sequence[Level], counts: Sequence[int]) -> list[Level]:
    """Return the level of each number; a number that is missing has that of the largest one below it.

    Parameters
    ----------
    found
        From `levels`.
    counts
        The numbers.
    """
    known = [level.k for level in found]
    return [found[i - 1] for i in np.searchsorted(known, counts, side="right")]


def share_of_evidence(found: Sequence[Level], counts: Sequence[int]) -> np.ndarray:
    """Return, for each number, its part of the evidence that the best number has over a single domain; at most 1.

    Where a single domain is best, all have none.

    Parameters
    ----------
    found, counts
        As for `levels_of`.
    """
    single, best = found[0].neg_evidence, _gain_of_best(found)
    gain = np.array([single - level.neg_evidence for level in levels_of(found, counts)])
    return gain / best if best > 0 else np.zeros(gain.size)


def strength_of_evidence(found: Sequence[Level]) -> float:
    """Return the evidence that the best number has over a single domain, in nats for each spot; at least 0.

    Parameters
    ----------
    found
        As for `levels_of`.
    """
    return _gain_of_best(found) / found[0].labels.size


def _gain_of_best(found: Sequence[Level]) -> float:
    return found[0].neg_evidence - min(level.neg_evidence for level in found)


def _without_empty(landscape: Landscape, fit: Fit) -> tuple[Fit, Landscape]:
    """Fit again with fewer domains until each has spots."""
    while (filled := np.unique(fit.labels)).size < landscape.k:
        landscape = landscape.with_domains(filled.size)
        fit = landscape.fit(np.searchsorted(filled, fit.labels))
    return fit, landscape


def _united(landscape: Landscape, fit: Fit, one: int, other: int) -> Fit:
    labels = np.where(fit.labels == one, other, fit.labels)
    labels = np.where(labels > one, labels - 1, labels)
    return landscape.with_domains(landscape.k - 1).fit(labels)


def _log_beta(weights: np.ndarray) -> np.ndarray:
    """The logarithm of the multivariate beta function of each row."""
    return np.asarray(gammaln(weights).sum(axis=1) - gammaln(weights.sum(axis=1)))
