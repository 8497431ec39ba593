"""F of a section's domains with states held: fits from labels, and what is proposed and compared on the way."""

import threading
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree
from scipy.special import softmax

from spatialpdvi.features.smoothing import averages_of_nearest
from spatialpdvi.graph.neighbors import means_along_edges, nearest_spots
from spatialpdvi.graph.patches import make_patches
from spatialpdvi.initialization.states import posterior_without_domains
from spatialpdvi.initialization.variation import change_by_variation, smooth_functions
from spatialpdvi.kernels.mixture import evaluate_spots, sweep
from spatialpdvi.kernels.posteriors import LEAST
from spatialpdvi.kernels.search import compose, fit_domains
from spatialpdvi.options.states import SAMPLED_FROM
from spatialpdvi.problems.composition import StateLikelihoods, composed
from spatialpdvi.problems.potts_mixture import one_hot
from spatialpdvi.runtime.rows import slices, some_rows

__all__ = [
    "MOST_AVERAGED",
    "SMALLEST",
    "Fit",
    "Landscape",
    "Places",
    "lacking",
    "members",
    "profiles",
]

MOST_AVERAGED = 60  # nearest spots that state posteriors are averaged over
_MOST = 150  # rounds of a fit to the end
_HELD = 3  # sweeps with the compositions of another section, or of a sample
_SETTLED = 2e-4  # mean total variation distance of a round
_EM = 49  # rounds, of the shares of the states in the section
_COUNTED = 100_000  # spots from which the shares are learnt, at most
SMALLEST = 10  # spots of a domain
_SMALLEST_SHARE = 0.15  # of the spots of an average domain
_PRICE = 0.05  # of a domain, as a part of what domains explain; the highest that `--k auto` asks
_LITTLE = 0.1  # nats a spot that domains explain; with less, F does not tell how many there are
# Nats a spot by which F may be behind after so many rounds and still win. Where fits with more domains come first, one
# that lacks more never wins: of 1,751 on four sections that did so after eight rounds, three found their domains again
_BEHIND = {8: np.inf, 16: 0.012, 41: 0.003}
_NONE = (np.inf, np.inf)  # the rank of a fit that any is better than


class Fit(NamedTuple):
    """A fit of domains with states held."""

    neg_elbo: float  # F, up to a constant of the section and its states
    labels: np.ndarray  # (n,)
    phi: np.ndarray  # (n, K)
    composition: np.ndarray  # pi (K, C)


class Places:
    """Where spots are, with what follows from that alone and landscapes with different states therefore share.

    Parameters
    ----------
    coordinates
        (n, 2) or (n, 3), any unit.
    """

    def __init__(self, coordinates: np.ndarray) -> None:
        self.coordinates = coordinates

    @property
    def n(self) -> int:
        """The number of spots."""
        return int(self.coordinates.shape[0])

    @cached_property
    def nearest(self) -> np.ndarray:
        """The nearest spots (n, q) of each, that states are averaged over."""
        return nearest_spots(cKDTree(self.coordinates), np.arange(self.n), MOST_AVERAGED)

    @cached_property
    def smooth_functions(self) -> np.ndarray:
        """The functions (n, b) of the place with which compositions may vary."""
        return smooth_functions(self.coordinates)

    def of(self, spots: np.ndarray) -> "Places":
        """Return those of some of the spots (m,)."""
        return Places(self.coordinates[spots])


class Landscape:
    """F of a section's domains as a function of posteriors and compositions, with states held.

    Parameters
    ----------
    likelihood
        (n, C), of each spot in each state, relative to its likeliest state.
    places
        Of the spots.
    graph
        Symmetric CSR (n, n) of the edges' weights; the attribute of this name is in the order of the landscape.
    k
        K.
    prior_weight
        a (C,), as in `spatialpdvi.problems.composition.CompositionMixture`.

    Attributes
    ----------
    price
        Of a domain in nats: by how much F must be lower for each of the K domains that a fit lacks. Infinite until
        `with_price_from` gives it a value.
    """

    def __init__(
        self, likelihood: np.ndarray, places: Places, graph: sp.csr_matrix, k: int, prior_weight: np.ndarray
    ) -> None:
        self._patching = make_patches(places.coordinates, graph, 1)
        self.order, (self._patch,) = self._patching.order, self._patching.patches
        self.n = likelihood.shape[0]
        self.states = StateLikelihoods(np.ascontiguousarray(likelihood[self.order]), np.zeros(self.n))
        self.places = places
        self.k, self.prior_weight, self.price = k, prior_weight, np.inf
        self.graph = sp.csr_matrix((self._patch.weights, self._patch.indices, self._patch.indptr), shape=graph.shape)
        self._share = _share_without_domains(self.states.relative)
        self._kept = threading.local()

    @cached_property
    def responsibility(self) -> np.ndarray:
        """Each spot's posterior over states (n, C) without domains, which a fit alone does not need at once."""
        return self.without_domains(slice(None))

    @cached_property
    def nearest(self) -> np.ndarray:
        """The spots (n, q) that are nearest to each, in the order of the landscape."""
        place = np.empty(self.n, dtype=np.int64)
        place[self.order] = np.arange(self.n)
        return place[self.places.nearest[self.order]]

    @cached_property
    def smooth_functions(self) -> np.ndarray:
        """The functions (n, b) of the place with which compositions may vary, in the order of the landscape."""
        return self.places.smooth_functions[self.order]

    def without_domains(self, rows: slice) -> np.ndarray:
        """Return what `responsibility` has in some rows, without making the others; not to be written to."""
        if "responsibility" in self.__dict__:
            return self.responsibility[rows]
        return posterior_without_domains(self.states.relative[rows], self._share)

    def varied(self, fit: Fit) -> float:
        """Return F of a fit where compositions vary within its domains, as they are."""
        given = (self.states.relative, self.smooth_functions, fit.labels, fit.phi.shape[1], self.prior_weight)
        return fit.neg_elbo + change_by_variation(*given)

    def fit(self, labels: np.ndarray, *, rounds: int = _MOST, known: tuple[float, float] = _NONE) -> Fit:
        """Fit posteriors and compositions in turn from labels (n,).

        A fit far behind ``known``, the `rank` of another or the worst that is of use, is cut short.
        """
        phi = one_hot(labels, self.k)
        found = sum(phi[rows].T @ self.without_domains(rows) for rows in slices(self.n))
        return self._settle(phi, self.composed(np.asarray(found)), rounds, known)

    def fit_from(self, composition: np.ndarray, *, rounds: int) -> Fit:
        """Fit from compositions (K, C): first the posteriors alone, from those of single spots."""
        data_term = self.states.domain_term(composition)
        phi = np.empty_like(data_term)
        for rows in slices(self.n):
            phi[rows] = softmax(data_term[rows], axis=1)
        for _ in range(_HELD):
            self.sweep(phi, data_term)
        return self._settle(phi, composition, rounds, _NONE)

    def go_on(self, fit: Fit, *, rounds: int = _MOST) -> Fit:
        """Continue a fit; every round is one sweep and the optimum of the compositions, so that F never rises."""
        return self._settle(fit.phi.copy(), fit.composition, rounds, _NONE)

    def _settle(self, phi: np.ndarray, composition: np.ndarray, rounds: int, known: tuple[float, float]) -> Fit:
        """Continue from posteriors, which are overwritten."""
        room, spare = self._rooms(phi.shape)
        before = spare.reshape(-1).view(np.float32)[: phi.size].reshape(phi.shape)  # F needs the room only after it
        given, a = (self.states.relative, *self._edges(), self._patch.colour_start), self.prior_weight
        composition = composition.copy()
        mixed, done = self.states.of_domains(composition, out=room), 0
        looks = [] if known == _NONE else [turn for turn in _BEHIND if turn < rounds]
        for stop in (*looks, rounds):
            if fit_domains(*given, a, stop - done, _SETTLED, before, mixed, composition, phi):
                break
            done = stop
            if done in looks and self._is_behind(phi, composition, mixed, known, _BEHIND[done] * self.n):
                break
        compose(self.states.relative, a, phi, mixed, composition)
        return Fit(self.neg_elbo(phi, composition), phi.argmax(axis=1), phi, composition)

    def _is_behind(
        self, phi: np.ndarray, composition: np.ndarray, mixed: np.ndarray, known: tuple[float, float], allowed: float
    ) -> bool:
        """Whether a fit lacks more domains than a known rank, where these come first, or is behind it in F by much."""
        last_tier, lowest = known
        tier, surcharge = self._for_lacking(phi.argmax(axis=1))
        if tier > last_tier:
            return True
        if not np.isfinite(lowest + allowed):
            return False
        value = self.neg_elbo(phi, composition)
        self.states.of_domains(composition, out=mixed)  # F has taken its room
        return value + surcharge > lowest + allowed

    def rank(self, fit: Fit) -> tuple[int, float]:
        """Return what fits are sorted by: a tier, and within it F with the price of each domain that the fit lacks.

        F has no term that keeps a domain alive: without a price, a section of K domains would often be given fewer.
        All fits are of one tier, unless the price is infinite: the tier is then the number of domains that are lacking.
        """
        tier, surcharge = self._for_lacking(fit.labels)
        return tier, fit.neg_elbo + surcharge

    def _for_lacking(self, labels: np.ndarray) -> tuple[int, float]:
        """The tier of labels (n,), and what is added to F."""
        n_lacking = lacking(labels, self.k)
        return (n_lacking, 0.0) if np.isinf(self.price) else (0, self.price * n_lacking)

    def neg_elbo(self, phi: np.ndarray, composition: np.ndarray) -> float:
        """Return F of (C3) without the states' own terms."""
        room, _ = self._rooms(phi.shape)
        return self.term_of_spots(phi, self.states.domain_term(composition, out=room)) + self.prior(composition)

    def sweep(self, phi: np.ndarray, data_term: np.ndarray) -> None:
        """Do one Gauss-Seidel sweep over the posteriors, in place (E3)."""
        sweep(data_term, *self._edges(), np.zeros((0, self.k)), self._patch.colour_start, phi)

    def term_of_spots(self, phi: np.ndarray, data_term: np.ndarray) -> float:
        """Return the first two terms of (C3), those of the spots and of their edges."""
        value, no_halo = np.empty(self.n), np.zeros((0, self.k))
        _, spare = self._rooms(phi.shape)
        evaluate_spots(data_term, *self._edges(), no_halo, phi, spare, value, np.empty(0))
        return float(value.sum())

    def as_given(self, rows: np.ndarray) -> np.ndarray:
        """Return labels (n,) or posteriors (n, K) in the order of the spots that the landscape was made of."""
        return self._patching.as_given(rows)

    def with_domains(self, k: int) -> Self:
        """Return the same spots, states and edges with another number of domains."""
        other = copy(self)
        other.k = k
        return other

    def with_price_from(self, fits: Sequence[Fit]) -> Self:
        """Return the same with a price of a domain that is a part of what the domains of the best fit explain.

        They explain the difference between its F and that of a single domain. Where this is little, the price is
        infinite, since F alone would hardly keep any domain.
        """
        explained = self.of_single_domain() - min(fit.neg_elbo for fit in fits)
        other = copy(self)
        other.price = _PRICE * explained if explained > _LITTLE * self.n else np.inf
        return other

    def of_single_domain(self) -> float:
        """Return F of a single domain."""
        return self.with_domains(1).fit(np.zeros(self.n, dtype=np.int64), rounds=1).neg_elbo

    def with_prior_of(self, weight: float) -> Self:
        """Return the same with a prior whose weights add up to so many spots."""
        other = copy(self)
        other.prior_weight = weight * self.prior_weight / self.prior_weight.sum()
        return other

    def prior(self, composition: np.ndarray) -> float:
        """Return the term of the compositions' prior in (C3)."""
        return float(self.priors(composition).sum())

    def priors(self, composition: np.ndarray) -> np.ndarray:
        """Return each domain's part (K,) of that term."""
        return -np.asarray((self.prior_weight * np.log(np.maximum(composition, LEAST))).sum(axis=1))

    def composed(self, members: np.ndarray) -> np.ndarray:
        """Return the compositions (K, C) of domains with ``members`` M (K, C) (C5)."""
        return composed(members, self.prior_weight)

    def _rooms(self, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Two arrays that this thread keeps from fit to fit, in which a data term and what follows from it are made.

        Memory of a large section that is new takes longer to get than what is written to it to compute.
        """
        kept: tuple[np.ndarray, np.ndarray] | None = getattr(self._kept, "rooms", None)
        if kept is None or kept[0].shape != shape:
            kept = self._kept.rooms = (np.empty(shape), np.empty(shape))
        return kept

    def _edges(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._patch.indptr, self._patch.indices, self._patch.weights


def lacking(labels: np.ndarray, k: int) -> int:
    """Return how many of k domains have too few of the spots (n,) to count as found.

    These are fewer than ten (or than half of the average domain, where it has few), or than 0.15 of the average domain.
    Smaller ones cost F little wherever the tissue is narrow, so that the lowest F cuts off the tips of limbs rather
    than tell organs apart.
    """
    average = labels.size / k
    least = max(min(SMALLEST, 0.5 * average), _SMALLEST_SHARE * average)
    return int((np.bincount(labels, minlength=k) < least).sum())


def members(states: StateLikelihoods, phi: np.ndarray, composition: np.ndarray) -> np.ndarray:
    """Return M (K, C), how many spots of each domain are in each state (C2)."""
    return states.members(states.weighted(phi, composition), composition)


def profiles(landscape: Landscape, scales: Sequence[int]) -> Iterator[np.ndarray]:
    """Yield square roots (n, C) of state posteriors averaged over each spot and as many around it, for each scale.

    Of a large section, the mean over a spot and the d joined to it is taken r times, which weighs spots by a Gaussian
    about as wide as a disc with r (d + 1) spots: to find the 60 nearest of a million takes as long as the brief fits.
    Where no spot is joined to another, as at a beta of 0, the nearest are found all the same.
    """
    n = landscape.n
    if n < SAMPLED_FROM or not landscape.graph.nnz:
        yield from map(np.sqrt, averages_of_nearest(landscape.responsibility, landscape.nearest, scales))
        return
    values = np.empty(landscape.states.relative.shape, dtype=np.float32)
    for rows in slices(n):
        values[rows] = landscape.without_domains(rows)
    rounds = [max(1, round(scale / (1.0 + landscape.graph.nnz / n))) for scale in scales]
    yield from map(np.sqrt, means_along_edges(values, landscape.graph, rounds))


def _share_without_domains(likelihood: np.ndarray) -> np.ndarray:
    """The share (C,) of each state among the spots, of large sections some, without domains, by EM."""
    some = some_rows(likelihood, 0, _COUNTED)
    n, n_states = some.shape
    share = np.full(n_states, 1.0 / n_states)
    for _ in range(_EM):
        share = posterior_without_domains(some, share).sum(axis=0) / n
    return share
