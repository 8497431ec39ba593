r"""A search for the lowest F of a mixture of compositions, with its states held.

    1  fit briefly from labels of every kind, and to the end from the best of them
    2  propose changes of the best fit, each a new domain and a union of two old ones:
       a domain cut in two, or a domain of another fit that this one does not have
    3  fit from the proposal of the largest promised gain; keep the fit if it is among the best
    4  of the kept fits that are about as good, choose that with the lowest F where compositions vary within domains

Fits are compared by F and a price for each domain that they lack (`Landscape.rank`).

A new domain's gain is found by fitting the two halves within the domain alone; a union's cost from the statistics of
its two domains. Both are changes of F with everything else held, so that their sum is what a proposal promises before
it is refitted (split and merge moves: Hughes and Sudderth 2013, Bryant and Sudderth 2012). Other fits supply domains as
parents do in a memetic algorithm. What these promise is without the prior of their composition, some two nats for each
thousand spots, so that they come a little before cuts (docs/lab_notebook.md compares both).

All loops are over a fixed number of steps, and none depends on the clock or on the number of threads.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from spatialpdvi.initialization.landscape import MOST_AVERAGED, SMALLEST, Fit, Landscape, lacking, members, profiles
from spatialpdvi.initialization.restarts import kmeans_labels
from spatialpdvi.kernels.posteriors import LEAST
from spatialpdvi.kernels.search import domains_inserted, fit_two_within

__all__ = ["Found", "composition_labels", "lowest", "unions"]

_SCALES = (15, 30, MOST_AVERAGED)  # spots that state posteriors are averaged over for composition starts
_EACH = 3  # composition starts at each scale
_CUT_SCALES = (8, 20, 45)  # the same, for cutting a domain in two
_BRIEF = 25  # rounds of a first fit
_FINISHED = 6  # first fits that are fitted to the end
_KEPT = 12  # fits
_TRIES = 6  # proposals of a round that are refitted, at most
_PARENTS = 4  # other fits whose domains are proposed in a round
_LOCAL = 14  # rounds of a fit within one domain
_AT_REST = 1e-3  # mean total variation distance of such a round
_COVERED = 0.9  # a domain that overlaps as much with one of the fit is not new to it
_PROMISED = 0.02  # nats a spot by which F may rise before a refit; of proposals that promise worse none has won
_AS_GOOD = 0.015  # nats a spot above the lowest F. Functions of the place could imitate a domain in poorer fits
_SAME = 0.5  # nats: fits this close, with 98 % of their labels equal, are the same


class Found(NamedTuple):
    """The domains that were chosen, and what the search did."""

    labels: np.ndarray  # (n,) in the order of the spots that were searched
    composition: np.ndarray  # pi (K, C)
    started_at: float  # F of the best fit among the starts, nats
    ended_at: float  # F of the best fit that was found
    n_proposed: int  # proposals that were refitted
    n_accepted: int  # of these, the best so far
    posterior: np.ndarray  # (n, K) float32: phi; of several searches the mean, of brief fits the shares of their votes


def lowest(landscape: Landscape, starts: Iterable[np.ndarray], *, rounds: int, seed: int) -> Found:
    """Return the best of the fits from the starts and from the proposals of ``rounds`` rounds.

    Of those whose F is about the lowest, it has the lowest where compositions vary within domains (C14).

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
    ended_at, best = search.best.neg_elbo, search.chosen
    return Found(
        landscape.as_given(best.labels),
        best.composition,
        started_at,
        ended_at,
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
        for profile in profiles(landscape, scales)
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
    """The fits that are kept, the best first, and the moves between them."""

    def __init__(self, landscape: Landscape, rng: np.random.Generator) -> None:
        self.landscape, self.rng = landscape, rng
        self.fits: list[Fit] = []
        self.n_proposed = self.n_accepted = 0
        self._tried: set[tuple[int, int, int]] = set()
        self._turn = 0

    @property
    def best(self) -> Fit:
        return self.fits[0]

    @property
    def chosen(self) -> Fit:
        """Line 4."""
        k, limit = self.landscape.k, self.best.neg_elbo + _AS_GOOD * self.landscape.n
        n_lacking = lacking(self.best.labels, k)
        near = [fit for fit in self.fits if lacking(fit.labels, k) == n_lacking and fit.neg_elbo <= limit]
        if len(near) == 1 or not self.landscape.smooth_functions.size:
            return self.best
        return min(near, key=self.landscape.varied)

    @cached_property
    def _profiles(self) -> list[np.ndarray]:
        return list(profiles(self.landscape, _CUT_SCALES))

    def begin(self, starts: Sequence[np.ndarray]) -> None:
        """Line 1."""
        brief = [self.landscape.fit(labels, rounds=_BRIEF) for labels in starts]
        self.landscape = self.landscape.with_price_from(brief)
        for fit in sorted(brief, key=self.landscape.rank)[:_FINISHED]:
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
        """Refit the proposals of the largest promised gain; whether one of them is better than ``base``."""
        rank = self.landscape.rank
        best_tier, _ = rank(self.best)  # F of fits of other tiers says nothing of what is worth finishing
        worst = max(value for tier, value in map(rank, self.fits) if tier == best_tier)
        limit = worst if len(self.fits) == _KEPT else np.inf
        for proposal in self._proposals(base):
            labels = base.labels.copy()
            labels[labels == proposal.freed] = proposal.kept
            labels[proposal.region] = proposal.freed
            fit = self.landscape.fit(labels, known=(best_tier, limit))
            tier, value = rank(fit)
            if tier < best_tier and value > limit:  # better, though it was cut short
                fit = self.landscape.go_on(fit)
            self.n_proposed += 1
            self.n_accepted += rank(fit) < rank(self.best)
            self._keep(fit)
            if rank(fit) < rank(base):
                return True
        return False

    def _keep(self, fit: Fit) -> None:
        for other in self.fits:
            same = abs(other.neg_elbo - fit.neg_elbo) < _SAME and (other.labels == fit.labels).mean() > 0.98
            if same and other.neg_elbo <= fit.neg_elbo:
                return
        self.fits = sorted([*self.fits, fit], key=self.landscape.rank)[:_KEPT]

    def _proposals(self, base: Fit) -> list[_Proposal]:
        """The proposals that promise most, at most one for each region and none that was refitted before."""
        can_cut = self.landscape.k > 2  # while a domain is cut, two others become one
        regions = (self._cuts(base) if can_cut else []) + self._foreign(base)
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
            if spots.size < 2 * SMALLEST:
                continue
            half = _cluster(profile[spots], 2, self.rng) == 1
            gain, inside = _cut(self.landscape, base, domain, spots, half)
            if SMALLEST <= inside.sum() <= spots.size - SMALLEST:
                region = np.zeros(self.landscape.n, dtype=bool)
                region[spots[inside]] = True
                found.append((gain, domain, region))
        return found

    def _foreign(self, base: Fit) -> list[tuple[float, int, np.ndarray]]:
        """Domains of other fits that this one does not have: change of F, -1, region."""
        others = [fit for fit in self.fits if fit is not base]
        chosen = self.rng.permutation(len(others))[:_PARENTS]
        return _inserted(self.landscape, base, [others[other] for other in chosen])


def _cut(landscape: Landscape, base: Fit, domain: int, spots: np.ndarray, half: np.ndarray) -> tuple[float, np.ndarray]:
    """Fit two domains within one, all else held: the change of F, and the spots (bool) of the second."""
    place = np.full(landscape.n, -1)
    place[spots] = np.arange(spots.size)
    relative, graph, responsibility = landscape.states.relative, landscape.graph, landscape.responsibility
    composition = landscape.composed(np.stack([responsibility[spots[part]].sum(axis=0) for part in (~half, half)]))
    second = half.astype(float)
    edges = (graph.indptr, graph.indices, graph.data)
    limits = (_LOCAL, _AT_REST)
    two, inside = fit_two_within(relative, spots, place, *edges, landscape.prior_weight, *limits, composition, second)
    old = base.composition[domain : domain + 1]
    one = -landscape.states.of_spots(spots).domain_term(old).sum() - inside + landscape.prior(old)
    return float(two - one), second > 0.5


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
    return np.asarray((values * np.log(np.maximum(values, LEAST))).sum(axis=0))


def _inserted(landscape: Landscape, base: Fit, others: Sequence[Fit]) -> list[tuple[float, int, np.ndarray]]:
    """Domains of other fits as new domains of this one, by hard labels: change of F, -1, region."""
    found: list[tuple[float, int, np.ndarray]] = []
    k, graph, relative = landscape.k, landscape.graph, landscape.states.relative
    current = landscape.states.domain_term(base.composition)[np.arange(landscape.n), base.labels]
    given = (relative, graph.indptr, graph.indices, graph.data, base.labels, current)
    sizes = np.bincount(base.labels, minlength=k)
    changes, overlap = np.empty(k), np.empty((k, k), dtype=np.int64)
    for other in others:
        domains_inserted(*given, other.labels, other.composition, changes, overlap)
        size, largest = overlap.sum(axis=1), overlap.argmax(axis=1)
        covered = overlap.max(axis=1) > _COVERED * np.maximum(size, sizes[largest])
        new = np.flatnonzero((size >= SMALLEST) & ~covered)
        found += [(float(changes[domain]), -1, other.labels == domain) for domain in new]
    return found


def _cluster(profile: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    return kmeans_labels(profile, k, seed=int(rng.integers(2**32)))
