r"""One labelling from many: a latent class model of what the restarts say (Dawid and Skene 1979).

Restart r gives spot i the label l_ri. Given the spot's class c_i = k, labels of different restarts are taken as
independent, ``p(l_ri = l | c_i = k) = pi_rkl``; EM alternates

    gamma_ik \propto p_k  prod_r pi_{r, k, l_ri}^{1 / sqrt(R)}        pi_rkl \propto 1/2 + sum_i gamma_ik [l_ri = l]

A restart that disagrees with the others says little by its rows of pi and counts little, and one that has merged two
domains still votes for the pair. The power 1/sqrt(R) is ours: R restarts on one tissue are not R independent witnesses.
EM has many optima, and a vote that is matched to one restart inherits that restart's: it begins at several of them, and
the one whose classes make what was said most likely is taken.

With few spots to a label there is little that restarts agree on, and classes merge until hardly any is left. Where
fewer than half the labels of the most typical restart are left (the one with the largest mean ARI to all others), that
restart is taken as it is, and `Consensus.collapsed` tells it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment

from spatialpdvi.metrics.clustering import adjusted_rand_index, overlap

__all__ = ["Consensus", "consensus", "match_labels"]

_BEGINNINGS = 20  # restarts that EM begins at, at the most
_COMPARED = 5_000  # spots on which the beginnings are compared, and restarts with each other
_BLOCK = 100_000  # spots whose votes are in hand at a time
_STEPS = 50
_SETTLED = 1e-3  # largest change of gamma
_LEFT = 0.5  # of the labels of a restart: a consensus of fewer has collapsed
_SURE = 0.9  # weight of a restart's own label at the beginning


class Consensus(NamedTuple):
    """What restarts say together, or the most typical of them."""

    labels: np.ndarray  # (n,) int64 in 0..K-1
    agreement: np.ndarray  # (n,) float32: share of restarts that, matched to the labels, say the same of the spot
    similarity: float  # mean ARI between two restarts, NaN for a single one
    accord: float  # chance that two restarts, matched to the labels, say the same of a spot; 1 for a single one
    collapsed: int | None = None  # classes that were left, where the labels are those of one restart for that reason


class _Profiles(NamedTuple):
    """What is said of spots; spots of which all restarts say the same are one profile."""

    labels: np.ndarray  # (u, R)
    indicators: sp.csr_matrix  # (u, R K): 1 where restart r says l
    weight: np.ndarray  # (u,): spots
    where: np.ndarray  # (n,): each spot's profile


class _Classes(NamedTuple):
    """Latent classes of some spots."""

    gamma: np.ndarray  # (u, K)
    table: np.ndarray  # (R K, K): log pi, a row for each restart and label
    share: np.ndarray  # (K,): log p
    likelihood: float


def consensus(restarts: Sequence[np.ndarray], k: int) -> Consensus:
    """Labels and agreement of several labellings (n,) of the same spots, each in 0..K-1."""
    said = np.stack(restarts)
    some = said[:, :: max(1, said.shape[1] // _COMPARED)]
    chosen = np.unique(np.linspace(0, len(said) - 1, _BEGINNINGS).round().astype(int))
    seen = _profiles(some, k)
    begun = (_expect(seen, _sure(seen.labels[:, r], k)) for r in chosen)
    classes = max(begun, key=lambda c: c.likelihood)
    everything = _profiles(said, k)
    gamma, _ = _posterior(everything, classes.table, classes.share)
    labels = _expect(everything, gamma).gamma.argmax(axis=1)[everything.where]
    alike = _alike(some)
    typical = said[alike.mean(axis=1).argmax()]
    left, collapsed = np.unique(labels).size, None
    if left < _LEFT * np.unique(typical).size:
        labels, collapsed = typical, left
    agreement, accord = _agreement(said, labels, k)
    return Consensus(labels, agreement, _similarity(alike), accord, collapsed)


def match_labels(labels: np.ndarray, reference: np.ndarray, k: int) -> np.ndarray:
    """Permutation (K,) that takes labels to those of the reference with the most spots in common."""
    return np.asarray(linear_sum_assignment(-overlap(labels, reference, shape=(k, k)))[1], dtype=np.int64)


def _agreement(said: np.ndarray, labels: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """Share (n,) of the restarts, matched to the labels, that say what those do; share of their pairs that agree.

    The labels were made from the restarts and flatter them; two restarts know nothing of each other.
    """
    n_restarts, n = said.shape
    matching = np.stack([match_labels(own, labels, k) for own in said])
    pairs, same = 0, np.zeros(n, dtype=np.float32)
    for first in range(0, n, _BLOCK):
        block = slice(first, first + _BLOCK)
        votes = np.zeros((labels[block].size, k), dtype=np.int64)
        spots = np.arange(len(votes))
        for own, matched in zip(said, matching, strict=True):
            votes[spots, matched[own[block]]] += 1
        same[block] = votes[spots, labels[block]]
        pairs += int((votes * (votes - 1)).sum())
    accord = pairs / (n * n_restarts * (n_restarts - 1)) if n_restarts > 1 else 1.0
    return (same / n_restarts).astype(np.float32), accord


def _alike(said: np.ndarray) -> np.ndarray:
    """ARI (R, R) between labellings."""
    alike = np.eye(len(said))
    for a in range(len(said)):
        for b in range(a):
            alike[a, b] = alike[b, a] = adjusted_rand_index(said[a], said[b])
    return alike


def _similarity(alike: np.ndarray) -> float:
    """Mean ARI between two labellings."""
    pairs = alike[np.tril_indices(len(alike), -1)]
    return float(np.mean(pairs)) if pairs.size else float("nan")


def _profiles(said: np.ndarray, k: int) -> _Profiles:
    labels, where, weight = _distinct_columns(said, k)
    u, n_restarts = labels.shape
    columns = (labels + k * np.arange(n_restarts)).ravel()
    rows = np.arange(0, columns.size + 1, n_restarts)
    indicators = sp.csr_matrix((np.ones(columns.size), columns, rows), shape=(u, n_restarts * k))
    return _Profiles(labels, indicators, weight.astype(np.float64), where)


def _distinct_columns(said: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Different columns of said (R, n) as rows in lexicographic order, each column's place among them, their numbers.

    Labels are packed into as few 64-bit numbers as hold them, most significant first: sorting these is several times
    faster than `numpy.unique` of rows, with the same result.
    """
    n_restarts, n = said.shape
    kind = np.dtype(">u1" if k <= 1 << 8 else ">u2" if k <= 1 << 16 else ">u4")
    width = 8 // kind.itemsize
    packed = np.zeros((n, -(-n_restarts // width) * width), dtype=kind)
    packed[:, :n_restarts] = said.T
    keys = packed.view(">u8").astype(np.uint64)
    order = np.lexsort(keys.T[::-1])
    ordered = keys[order]
    first = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])
    where = np.empty(n, dtype=np.int64)
    where[order] = np.cumsum(first) - 1
    return said.T[order[first]], where, np.diff(np.append(np.flatnonzero(first), n))


def _sure(labels: np.ndarray, k: int) -> np.ndarray:
    gamma = np.full((labels.size, k), (1.0 - _SURE) / k)
    gamma[np.arange(labels.size), labels] += _SURE
    return gamma


def _expect(profiles: _Profiles, gamma: np.ndarray) -> _Classes:
    """EM from gamma (u, K) until it settles."""
    n_restarts, k = profiles.labels.shape[1], gamma.shape[1]
    heard = profiles.indicators.T.tocsr()
    for _ in range(_STEPS):
        weighted = gamma * profiles.weight[:, None]
        share = np.log(weighted.sum(axis=0) / profiles.weight.sum() + 1e-9)
        given = (0.5 + heard @ weighted).reshape(n_restarts, k, k)  # [restart, label, class]
        table = (np.log(given / given.sum(axis=1, keepdims=True)) / np.sqrt(n_restarts)).reshape(-1, k)
        before = gamma
        gamma, likelihood = _posterior(profiles, table, share)
        if np.abs(gamma - before).max() < _SETTLED:
            break
    return _Classes(gamma, table, share, likelihood)


def _posterior(profiles: _Profiles, table: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, float]:
    """Gamma (u, K) given the classes, and the (tempered) log likelihood of all that was said."""
    score = share + profiles.indicators @ table
    largest = score.max(axis=1, keepdims=True)
    gamma = np.exp(score - largest)
    total = gamma.sum(axis=1, keepdims=True)
    return gamma / total, float((profiles.weight * (np.log(total) + largest).ravel()).sum())
