r"""A search for the lowest F of a mixture of compositions, with its states held.

    1  fit briefly from labels of every kind, and to the end from the best of them
    2  propose changes of the best fit, each a new domain and a union of two old ones:
       a domain cut in two, or a domain of another fit that this one does not have
    3  fit from the proposal of the largest promised gain; keep the fit if it is among the best

A new domain's gain is found by fitting the two halves within the domain alone; a union's cost from the statistics of
its two domains. Both are changes of F with everything else held, so that their sum is what a proposal promises before
it is refitted (split and merge moves: Hughes and Sudderth 2013, Bryant and Sudderth 2012). Other fits supply domains as
parents do in a memetic algorithm.

All loops are over a fixed number of steps, and none depends on the clock or on the number of threads.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax

from spatialpdvi.features.smoothing import neighbor_averages
from spatialpdvi.graph.neighbors import means_along_edges
from spatialpdvi.graph.patches import make_patches
from spatialpdvi.initialization.start import one_hot
from spatialpdvi.initialization.states import posterior_without_domains
from spatialpdvi.kernels.mixture import N_CHUNKS, evaluate_spots, movement, sweep
from spatialpdvi.options.states import SAMPLED_FROM
from spatialpdvi.problems.composition import StateLikelihoods
from spatialpdvi.runtime.rows import slices

__all__ = ["Fit", "Found", "Landscape", "composition_labels", "lacking", "lowest", "members", "unions"]

_SCALES = (15, 30, 60)  # spots that state posteriors are averaged over for composition starts
_EACH = 3  # composition starts at each scale
_CUT_SCALES = (8, 20, 45)  # the same, for cutting a domain in two
_BRIEF, _MOST = 25, 150  # rounds of a first fit, and of a fit to the end
_HELD = 3  # sweeps with the compositions of another section, or of a sample
_FINISHED = 6  # first fits that are fitted to the end
_SETTLED = 2e-4  # mean total variation distance of a round
_KEPT = 12  # fits
_TRIES = 6  # proposals of a round that are refitted, at most
_PARENTS = 4  # other fits whose domains are proposed in a round
_EM = 49  # rounds, of the shares of the states in the section
_COUNTED = 100_000  # spots from which the shares are learnt, at most
_LOCAL = 14  # rounds of a fit within one domain
_SMALLEST = 10  # spots of a domain
_SMALLEST_SHARE = 0.15  # of the spots of an average domain
_COVERED = 0.9  # a domain that overlaps as much with one of the fit is not new to it
_PROMISED = 0.02  # nats a spot by which F may rise before a refit; of proposals that promise worse none has won
_BEHIND = {15: 0.012, 40: 0.003}  # nats a spot by which a fit may be behind after so many rounds and still win
_LEAST = 1e-290
_SAME = 0.5  # nats: fits this close, with 98 % of their labels equal, are the same


class Fit(NamedTuple):
    """A fit of domains with states held."""

    neg_elbo: float  # F, up to a constant of the section and its states
    labels: np.ndarray  # (n,)
    phi: np.ndarray  # (n, K)
    composition: np.ndarray  # pi (K, C)

    @property
    def rank(self) -> tuple[int, float]:
        """What fits are sorted by: first how many of the K domains they lack; then F.

        F has no term that keeps a domain alive. Without the first, a section of K domains would often be given fewer.
        """
        return lacking(self.labels, self.phi.shape[1]), self.neg_elbo


class Found(NamedTuple):
    """The lowest F, and what the search did."""

    labels: np.ndarray  # (n,) in the order of the spots that were searched
    composition: np.ndarray  # pi (K, C)
    started_at: float  # the lowest F among the starts, nats
    ended_at: float
    n_proposed: int  # proposals that were refitted
    n_accepted: int  # of these, with the lowest F so far
    posterior: np.ndarray  # (n, K) float32: phi; of several searches the mean, of brief fits the shares of their votes


class Landscape:
    """F of a section's domains as a function of posteriors and compositions, with states held.

    Parameters
    ----------
    likelihood
        (n, C), of each spot in each state, relative to its likeliest state.
    coordinates
        (n, 2) or (n, 3), any unit.
    graph
        Symmetric CSR (n, n) of the edges' weights; the attribute of this name is in the order of the landscape.
    k
        K.
    prior_weight
        a (C,), as in `spatialpdvi.problems.composition.CompositionMixture`.
    """

    def __init__(
        self, likelihood: np.ndarray, coordinates: np.ndarray, graph: sp.csr_matrix, k: int, prior_weight: np.ndarray
    ) -> None:
        patching = make_patches(coordinates, graph, 1)
        self.order, (self._patch,) = patching.order, patching.patches
        self.n = likelihood.shape[0]
        self.states = StateLikelihoods(np.ascontiguousarray(likelihood[self.order]), np.zeros(self.n))
        self.coordinates = coordinates[self.order]
        self.k, self.prior_weight = k, prior_weight
        self.graph = sp.csr_matrix((self._patch.weights, self._patch.indices, self._patch.indptr), shape=graph.shape)
        self._share = _share_without_domains(self.states.relative)
        self._kept = threading.local()

    @cached_property
    def responsibility(self) -> np.ndarray:
        """Each spot's posterior over states (n, C) without domains, which a fit alone does not need at once."""
        return posterior_without_domains(self.states.relative, self._share)

    def fit(self, labels: np.ndarray, *, rounds: int = _MOST, give_up_above: float = np.inf) -> Fit:
        """Fit posteriors and compositions in turn from labels (n,); a fit far above a known F is cut short."""
        phi = one_hot(labels, self.k)
        relative, share = self.states.relative, self._share
        found = sum(phi[rows].T @ posterior_without_domains(relative[rows], share) for rows in slices(self.n))
        return self._settle(phi, self.composed(np.asarray(found)), rounds, give_up_above)

    def fit_from(self, composition: np.ndarray, *, rounds: int) -> Fit:
        """Fit from compositions (K, C): first the posteriors alone, from those of single spots."""
        data_term = self.states.domain_term(composition)
        phi = np.empty_like(data_term)
        for rows in slices(self.n):
            phi[rows] = softmax(data_term[rows], axis=1)
        for _ in range(_HELD):
            self.sweep(phi, data_term)
        return self._settle(phi, composition, rounds, np.inf)

    def go_on(self, fit: Fit, *, rounds: int = _MOST, give_up_above: float = np.inf) -> Fit:
        """Continue a fit; every round is one sweep and the optimum of the compositions, so that F never rises."""
        return self._settle(fit.phi.copy(), fit.composition, rounds, give_up_above)

    def _settle(self, phi: np.ndarray, composition: np.ndarray, rounds: int, give_up_above: float) -> Fit:
        """Continue from posteriors, which are overwritten."""
        room, spare = self._rooms(phi.shape)
        before = spare.reshape(-1).view(np.float32)[: phi.size].reshape(phi.shape)  # F needs the room only after it
        moved = np.empty(N_CHUNKS)
        for turn in range(rounds):
            composition = self.composed(members(self.states, phi, composition, out=room))
            np.copyto(before, phi, casting="same_kind")
            self.sweep(phi, self.states.domain_term(composition, out=room))
            movement(before, phi, moved)
            if moved.sum() < _SETTLED * self.n:
                break
            behind = _BEHIND.get(turn)
            if behind is not None and self.neg_elbo(phi, composition) > give_up_above + behind * self.n:
                break
        composition = self.composed(members(self.states, phi, composition, out=room))
        return Fit(self.neg_elbo(phi, composition), phi.argmax(axis=1), phi, composition)

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
        given = np.empty_like(rows)
        given[self.order] = rows
        return given

    def with_domains(self, k: int) -> Self:
        """Return the same spots, states and edges with another number of domains."""
        other = copy(self)
        other.k = k
        return other

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
        return -np.asarray((self.prior_weight * np.log(np.maximum(composition, _LEAST))).sum(axis=1))

    def composed(self, members: np.ndarray) -> np.ndarray:
        """Return the compositions (K, C) of domains with ``members`` M (K, C) (C5)."""
        weights = members + self.prior_weight
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

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

    These are fewer than ten, or than 0.15 of what the average domain has. Smaller ones cost F little wherever
    the tissue is narrow, so that the lowest F cuts off the tips of limbs rather than tell organs apart.
    """
    return int((np.bincount(labels, minlength=k) < max(_SMALLEST, _SMALLEST_SHARE * labels.size / k)).sum())


def members(
    states: StateLikelihoods, phi: np.ndarray, composition: np.ndarray, *, out: np.ndarray | None = None
) -> np.ndarray:
    """Return M (K, C), how many spots of each domain are in each state (C2); ``out`` (n, K) is room for the way."""
    return states.members(states.weighted(phi, composition, out=out), composition)


def lowest(landscape: Landscape, starts: Iterable[np.ndarray], *, rounds: int, seed: int) -> Found:
    """Return the fit with the lowest F among fits from the starts and from the proposals of ``rounds`` rounds.

    Call inside `spatialpdvi.runtime.threads.single_threaded`.

    Parameters
    ----------
    landscape
        Of the section, or of a sample of it.
    starts
        Labels (n,) each, in the order of the spots that the landscape was made of.
    rounds
        Rounds of proposals; 0 for the best of the starts.
    seed
        Of the cuts, and of the order of parents.
    """
    search = _Search(landscape, np.random.default_rng(seed))
    search.begin([labels[landscape.order] for labels in starts])
    started_at = search.best.neg_elbo
    search.propose(rounds)
    best = search.best
    return Found(
        landscape.as_given(best.labels),
        best.composition,
        started_at,
        best.neg_elbo,
        search.n_proposed,
        search.n_accepted,
        landscape.as_given(best.phi.astype(np.float32)),
    )


def composition_labels(
    landscape: Landscape, *, seed: int, scales: Sequence[int] = _SCALES, each: int = _EACH
) -> list[np.ndarray]:
    """Return k-means labels (n,) of the square roots of state posteriors averaged over so many neighbours.

    There are ``each`` of every scale. Square roots make the distance between two compositions that of Hellinger. The
    labels are in the order of the spots that the landscape was made of.
    """
    rng = np.random.default_rng(seed)
    return [
        landscape.as_given(_cluster(profile, landscape.k, rng))
        for profile in _profiles(landscape, scales)
        for _ in range(each)
    ]


class _Proposal(NamedTuple):
    """A region that becomes a domain of its own, while two other domains become one."""

    promised: float  # change of F
    region: np.ndarray  # (n,) bool
    kept: int  # the domain that the other is united with
    freed: int  # the domain whose number the region takes

    @property
    def key(self) -> tuple[int, int, int]:
        """Equal for proposals that are as good as the same."""
        return round(self.promised), self.kept, self.freed


class _Search:
    """The fits that are kept, the lowest F first, and the moves between them."""

    def __init__(self, landscape: Landscape, rng: np.random.Generator) -> None:
        self.landscape, self.rng = landscape, rng
        self.fits: list[Fit] = []
        self.n_proposed = self.n_accepted = 0
        self._tried: set[tuple[int, int, int]] = set()
        self._turn = 0
        self._profiles = list(_profiles(landscape, _CUT_SCALES))

    @property
    def best(self) -> Fit:
        return self.fits[0]

    def begin(self, starts: Sequence[np.ndarray]) -> None:
        """Line 1."""
        brief = [self.landscape.fit(labels, rounds=_BRIEF) for labels in starts]
        for fit in sorted(brief, key=lambda fit: fit.rank)[:_FINISHED]:
            self._keep(self.landscape.go_on(fit))

    def propose(self, rounds: int) -> None:
        """Lines 2 and 3, from the best fit that has not failed to give a better one."""
        failed: set[float] = set()
        for _ in range(rounds):
            open_ = [fit for fit in self.fits if fit.neg_elbo not in failed]
            if not open_:
                return
            if not self._improve(open_[0]):
                failed.add(open_[0].neg_elbo)

    def _improve(self, base: Fit) -> bool:
        """Refit the proposals of the largest promised gain; whether one of them has a lower F than ``base``."""
        worst = self.fits[-1].neg_elbo if len(self.fits) == _KEPT else np.inf
        for proposal in self._proposals(base):
            labels = base.labels.copy()
            labels[labels == proposal.freed] = proposal.kept
            labels[proposal.region] = proposal.freed
            fit = self.landscape.fit(labels, give_up_above=worst)
            self.n_proposed += 1
            self.n_accepted += fit.rank < self.best.rank
            self._keep(fit)
            if fit.rank < base.rank:
                return True
        return False

    def _keep(self, fit: Fit) -> None:
        for other in self.fits:
            same = abs(other.neg_elbo - fit.neg_elbo) < _SAME and (other.labels == fit.labels).mean() > 0.98
            if same and other.neg_elbo <= fit.neg_elbo:
                return
        self.fits = sorted([*self.fits, fit], key=lambda fit: fit.rank)[:_KEPT]

    def _proposals(self, base: Fit) -> list[_Proposal]:
        """The proposals that promise most, at most one for each region and none that was refitted before."""
        regions = self._cuts(base) + self._foreign(base)
        costs_of_unions = unions(self.landscape, base)
        proposals = []
        for gain, source, region in regions:
            costs = [(cost, pair) for pair, cost in costs_of_unions.items() if source not in pair]
            if costs:
                cost, (kept, freed) = min(costs)
                proposals.append(_Proposal(gain + cost, region, kept, freed))
        limit = _PROMISED * self.landscape.n
        new = [one for one in proposals if one.promised < limit and one.key not in self._tried]
        new = sorted(new, key=lambda proposal: proposal.promised)[:_TRIES]
        self._tried |= {proposal.key for proposal in new}
        return new

    def _cuts(self, base: Fit) -> list[tuple[float, int, np.ndarray]]:
        """Each domain cut in two by its state posteriors, at another scale every round: change of F, domain, region."""
        found = []
        profile = self._profiles[self._turn % len(self._profiles)]
        self._turn += 1
        for domain in range(self.landscape.k):
            spots = np.flatnonzero(base.labels == domain)
            if spots.size < 2 * _SMALLEST:
                continue
            half = _cluster(profile[spots], 2, self.rng) == 1
            gain, inside = _cut(self.landscape, base, domain, spots, half)
            if _SMALLEST <= inside.sum() <= spots.size - _SMALLEST:
                region = np.zeros(self.landscape.n, dtype=bool)
                region[spots[inside]] = True
                found.append((gain, domain, region))
        return found

    def _foreign(self, base: Fit) -> list[tuple[float, int, np.ndarray]]:
        """Domains of other fits that this one does not have: change of F, -1, region."""
        others = [fit for fit in self.fits if fit is not base]
        chosen = self.rng.permutation(len(others))[:_PARENTS]
        return [part for other in chosen for part in _inserted(self.landscape, base, others[other])]


def _cut(landscape: Landscape, base: Fit, domain: int, spots: np.ndarray, half: np.ndarray) -> tuple[float, np.ndarray]:
    """Fit two domains within one, all else held: the change of F, and the spots (bool) of the second."""
    edges, states = landscape.graph[spots][:, spots], landscape.states.of_spots(spots)
    phi = one_hot(half.astype(np.int64), 2)
    composition = landscape.composed(phi.T @ landscape.responsibility[spots])
    for turn in range(_LOCAL):
        new = softmax(states.domain_term(composition) + edges @ phi, axis=1)
        moved = np.abs(new - phi).mean()
        phi = 0.5 * (phi + new) if turn else phi  # damped: all spots at once from old posteriors could cycle
        composition = landscape.composed(members(states, phi, composition))
        if turn and moved < 1e-3:
            break
    data = states.domain_term(composition)
    two = _local_neg_elbo(phi, data, edges) + landscape.prior(composition)
    old = base.composition[domain : domain + 1]
    one = -states.domain_term(old).sum() - 0.5 * edges.sum() + landscape.prior(old)
    return float(two - one), phi[:, 1] > 0.5


def _local_neg_elbo(phi: np.ndarray, data: np.ndarray, edges: sp.csr_matrix) -> float:
    entropy = phi * np.log(np.maximum(phi, _LEAST))
    return float(np.sum(entropy - phi * data) - 0.5 * np.sum(phi * (edges @ phi)))


def unions(landscape: Landscape, base: Fit) -> dict[tuple[int, int], float]:
    """Return the change of F when two domains become one, for all pairs, with everything else held."""
    states, phi, composition = landscape.states, base.phi, base.composition
    found = members(states, phi, composition)
    own = (phi * states.domain_term(composition)).sum(axis=0) - _negentropy(phi) - landscape.priors(composition)
    pull = phi.T @ (landscape.graph @ phi)
    costs: dict[tuple[int, int], float] = {}
    for a in range(1, landscape.k):
        joint = landscape.composed(found[a] + found[:a])
        both = phi[:, [a]] + phi[:, :a]
        together = (both * states.domain_term(joint)).sum(axis=0) - _negentropy(both) - landscape.priors(joint)
        cost = own[a] + own[:a] - together - pull[a, :a]
        costs |= {(a, b): float(value) for b, value in enumerate(cost)}
    return costs


def _negentropy(values: np.ndarray) -> np.ndarray:
    """``sum_i phi_ik log phi_ik`` (K,) of posteriors (n, K)."""
    return np.asarray((values * np.log(np.maximum(values, _LEAST))).sum(axis=0))


def _inserted(landscape: Landscape, base: Fit, other: Fit) -> list[tuple[float, int, np.ndarray]]:
    """Domains of another fit as new domains of this one, by hard labels: change of F, -1, region."""
    found: list[tuple[float, int, np.ndarray]] = []
    current = landscape.states.domain_term(base.composition)[np.arange(landscape.n), base.labels]
    for domain in range(landscape.k):
        region = other.labels == domain
        size = int(region.sum())
        if size < _SMALLEST:
            continue
        overlap = np.bincount(base.labels[region], minlength=landscape.k)
        largest = int(overlap.argmax())
        if overlap[largest] > _COVERED * max(size, int((base.labels == largest).sum())):
            continue
        spots = np.flatnonzero(region)
        new = landscape.states.of_spots(spots).domain_term(other.composition[domain : domain + 1])[:, 0]
        edges = landscape.graph[spots]
        rows = np.repeat(spots, np.diff(edges.indptr))
        was, now = base.labels[edges.indices] == base.labels[rows], region[edges.indices]
        change = current[spots].sum() - new.sum()
        change += edges.data[was & ~now].sum() - 0.5 * edges.data[now & ~was].sum()
        found.append((float(change), -1, region))
    return found


def _share_without_domains(likelihood: np.ndarray) -> np.ndarray:
    """The share (C,) of each state among the spots, of large sections some, without domains, by EM."""
    some = np.ascontiguousarray(likelihood[:: -(-likelihood.shape[0] // _COUNTED)])
    n, n_states = some.shape
    share = np.full(n_states, 1.0 / n_states)
    for _ in range(_EM):
        share = posterior_without_domains(some, share).sum(axis=0) / n
    return share


def _profiles(landscape: Landscape, scales: Sequence[int]) -> Iterator[np.ndarray]:
    """Yield square roots (n, C) of state posteriors averaged over each spot and as many around it, for each scale.

    Of a large section, the mean over a spot and the d joined to it is taken r times, which weighs spots by a Gaussian
    about as wide as a disc with r (d + 1) spots: to find the 60 nearest of a million takes as long as the brief fits.
    """
    values, n = landscape.responsibility, landscape.n
    if n < SAMPLED_FROM:
        yield from map(np.sqrt, neighbor_averages(values, landscape.coordinates, scales, samples=[np.arange(n)]))
        return
    rounds = [max(1, round(scale / (1.0 + landscape.graph.nnz / n))) for scale in scales]
    yield from map(np.sqrt, means_along_edges(values.astype(np.float32), landscape.graph, rounds))


def _cluster(profile: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    from spatialpdvi.initialization.restarts import kmeans_labels

    return kmeans_labels(profile, k, seed=int(rng.integers(2**32)), n_init=1)
