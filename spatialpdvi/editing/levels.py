r"""Coarser domains: at every step, the two domains whose union raises F least become one.

With all other domains held, posteriors that add and parameters at their optimum, F (E1, C3) rises by

    U_ab - U_a - U_b - sum_ij r_ij phi_ia phi_jb                                                               (E13)

where U_k is what domain k alone adds to F. With one mean for each domain, L_k and m_k being those of (E7),

    U_k = sum_i phi_ik log phi_ik + 1/2 sum_f (1 + log L_kf - L_kf m_kf^2)                                      (E14)

and with compositions, of which pi_k is (C5) and b_ik (C2),

    U_k = sum_i phi_ik (log phi_ik - b_ik) - sum_c a_c log pi_kc                                                (C8)

The statistics N, S and M of a union are the sums of those of its parts. A step therefore needs the features only for
b_ik. Domains of a level are unions of those of every finer one.
"""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from spatialpdvi.editing.domains import hyperparameter, state_likelihoods
from spatialpdvi.errors import InputError
from spatialpdvi.io.results.stored import StoredFit
from spatialpdvi.problems.composition import StateLikelihoods
from spatialpdvi.problems.features import wrap_features
from spatialpdvi.runtime.threads import single_threaded

__all__ = ["Union", "groups_at", "level_counts", "successive_unions"]


class Union(NamedTuple):
    """A step from one number of domains to the next."""

    n_domains: int  # that have spots, after it
    kept: int  # position of the first domain of the one part among those of the fit
    united: int  # of the other part, larger
    rise: float  # of F, nats


class _Terms(Protocol):
    """What each domain alone adds to F, from its posterior and its statistics."""

    def start(self, posterior: np.ndarray) -> list[Any]:
        """Return the statistics of each domain; those of a union are their sum."""

    def own(self, phi: np.ndarray, statistics: Any) -> float:
        """Return U of a domain with the posterior phi (n,), without the sum of ``phi log phi``; nats."""


def level_counts(asked: str | int | Sequence[int], n_filled: int) -> list[int]:
    """Return the numbers of coarser domains, descending.

    Parameters
    ----------
    asked
        A number, numbers, or a text with numbers and ranges: "4,6,8" or "4:8".
    n_filled
        How many domains have spots.

    Raises
    ------
    InputError
        Where a number is none, or not from 2 to one less than the number of domains, or fewer than three domains have
        spots.
    """
    if n_filled < 3:
        raise InputError("at least three domains with spots", str(n_filled), "Fewer domains have no coarser levels.")
    wanted = "numbers such as 4,6,8 or a range such as 4:8"
    if isinstance(asked, str):
        words = asked.split(",")
    elif isinstance(asked, Integral):
        words = [str(asked)]
    elif isinstance(asked, Iterable):
        words = [str(number) for number in asked]
    else:
        raise InputError(wanted, repr(asked), option="levels")
    found: set[int] = set()
    for word in words:
        ends = [end.strip() for end in word.split(":")]
        if len(ends) > 2 or not all(end.isascii() and end.isdigit() for end in ends):
            raise InputError(wanted, repr(word), option="levels")
        first, last = int(ends[0]), int(ends[-1])
        if first > last:
            raise InputError("a range from a smaller to a larger number", repr(word), option="levels")
        for number in (first, last):
            if not 2 <= number < n_filled:
                raise InputError(
                    f"from 2 to {n_filled - 1}, since {n_filled} domains have spots", str(number), option="levels"
                )
        found |= set(range(first, last + 1))
    if not found:
        raise InputError("at least one number", "none", option="levels")
    return sorted(found, reverse=True)


def successive_unions(
    fit: StoredFit, features: np.ndarray | sp.csr_matrix, graph: sp.csr_matrix, *, fewest: int
) -> list[Union]:
    """Unite domains step by step, each time the two whose union raises F least (E13).

    Domains without spots are united first, each with the one that raises F least.

    Parameters
    ----------
    fit
        Its posteriors, parameters and hyperparameters.
    features
        x (n, d) that were fitted.
    graph
        Symmetric CSR (n, n) of the weights ``beta r_ij``.
    fewest
        Number of domains at which to stop, at least 1.
    """
    terms: _Terms = _Compositions(fit, features) if "composition" in fit.summary else _Means(fit.summary, features)
    with single_threaded():
        phi = {k: np.ascontiguousarray(column) for k, column in enumerate(fit.posterior.T)}
        pull = fit.posterior.T @ (graph @ fit.posterior)
        statistics = dict(enumerate(terms.start(fit.posterior)))
        own = {k: _own(terms, phi[k], statistics[k]) for k in phi}
        spots = dict(enumerate(fit.sizes))

        def rise(a: int, b: int) -> float:
            both = _own(terms, phi[a] + phi[b], statistics[a] + statistics[b])
            return float(both - own[a] - own[b] - pull[a, b])

        rises = {(a, b): rise(a, b) for a in phi for b in phi if a < b}
        steps: list[Union] = []
        while len(phi) > fewest:
            empty = [k for k in phi if not spots[k]]
            a, b = min((pair for pair in rises if not empty or set(pair) & set(empty)), key=rises.__getitem__)
            phi[a], statistics[a] = phi[a] + phi.pop(b), statistics[a] + statistics.pop(b)
            own[a] = _own(terms, phi[a], statistics[a])
            spots[a] += spots.pop(b)
            pull[a] += pull[b]
            pull[:, a] += pull[:, b]
            steps.append(Union(sum(size > 0 for size in spots.values()), a, b, rises[a, b]))
            rises = {pair: value for pair, value in rises.items() if not {a, b} & set(pair)}
            rises |= {(min(a, c), max(a, c)): rise(min(a, c), max(a, c)) for c in phi if c != a}
    return steps


def groups_at(steps: Sequence[Union], k: int, n_domains: int) -> np.ndarray:
    """Return the first domain (K,) of the coarser domain that each domain belongs to.

    Parameters
    ----------
    steps
        From `successive_unions`.
    k
        K.
    n_domains
        Number of coarser domains that have spots.
    """
    group = np.arange(k)
    for step in steps:
        if step.n_domains < n_domains:
            break
        group[group == step.united] = step.kept
    return group


def _own(terms: _Terms, phi: np.ndarray, statistics: Any) -> float:
    logs = np.log(phi, out=np.zeros_like(phi), where=phi > 0)
    return float(np.sum(phi * logs)) + terms.own(phi, statistics)


class _Means:
    """One mean for each domain (E14)."""

    def __init__(self, summary: Mapping[str, Any], features: np.ndarray | sp.csr_matrix) -> None:
        self._noise, self._prior = (1.0 / hyperparameter(summary, name) ** 2 for name in ("noise_sd", "prior_sd"))
        self._pulled = np.asarray(summary["prior_mean"]) * self._prior
        self._features = wrap_features(features)

    def start(self, posterior: np.ndarray) -> list[Any]:
        counts, sums = self._features.statistics(np.ascontiguousarray(posterior))
        return list(np.column_stack([counts, sums]))

    def own(self, phi: np.ndarray, statistics: Any) -> float:
        precision = statistics[0] * self._noise + self._prior
        weighted = statistics[1:] * self._noise + self._pulled
        return 0.5 * float(np.sum(1.0 + np.log(precision) - weighted**2 / precision))


class _Compositions:
    """Shares of states in each domain (C8)."""

    def __init__(self, fit: StoredFit, features: np.ndarray | sp.csr_matrix) -> None:
        self._states: StateLikelihoods = state_likelihoods(fit.summary, features)
        self._prior = np.asarray(fit.summary["prior_weight"])
        self._composition = np.asarray(fit.summary["composition"])

    def start(self, posterior: np.ndarray) -> list[Any]:
        weighted = self._states.weighted(np.ascontiguousarray(posterior), self._composition)
        return list(self._states.members(weighted, self._composition))

    def own(self, phi: np.ndarray, statistics: Any) -> float:
        weights = statistics + self._prior
        share = weights / weights.sum()
        data_term = self._states.domain_term(share[None])[:, 0]
        return -float(np.sum(phi * data_term)) - float(np.sum(self._prior * np.log(share)))
