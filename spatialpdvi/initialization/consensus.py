r"""The consensus of several labellings: a latent class model of the labels (Dawid and Skene 1979).

Restart r gives spot i the label l_ri. Given the spot's class c_i = k, labels of different restarts are taken as
independent, ``p(l_ri = l | c_i = k) = pi_rkl``; EM alternates

    gamma_ik \propto p_k  prod_r pi_{r, k, l_ri}^w        pi_rkl \propto 1/2 + sum_i gamma_ik [l_ri = l]

A restart that disagrees with the others has flat rows of pi and little influence, and one that has merged two domains
still votes for the pair. The power w = min(1 / sqrt(R), 5 / R) is ours: R restarts on one tissue are not R independent
witnesses, and all together they never count as more than five. Without that limit, hundreds of restarts would make
classes of the spots where they differ in the same way, instead of the domains on which they agree.
EM has many optima, and a vote that is matched to one restart inherits the mistakes of that restart. EM is therefore
run from several restarts, and the run with the highest likelihood is taken.

With few spots for each label, restarts agree on little, and classes merge until hardly any are left. Where fewer than
half the labels of the most typical restart are left (the restart with the largest mean ARI to all others), the labels
of that restart are taken instead, and `Consensus.collapsed` is set.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from spatialpdvi.kernels.clustering import class_scores, label_weights, posteriors
from spatialpdvi.metrics.clustering import adjusted_rand_index, overlap
from spatialpdvi.runtime.rows import slices, some_rows
from spatialpdvi.runtime.threads import on_threads

__all__ = ["Consensus", "consensus", "match_labels", "renumbered", "vote_shares"]

_EM_STARTS = 20  # restarts that EM is started from, at most
_COMPARED = 10_000  # spots at most on which EM runs are compared, and restarts with each other
_BLOCK = 100_000  # spots whose votes are in memory at a time
_LEARNT_FROM = 200_000  # spots that EM uses in the end, at most; it has some 1 kB of tables for each
_STEPS = 50
_SETTLED = 1e-3  # largest change of gamma
_LEFT = 0.5  # of the labels of a restart: a consensus of fewer has collapsed
_OWN_LABEL = 0.9  # weight of a restart's own label where EM starts from it
_WITNESSES = 5.0  # that restarts count as together, at most
_ALIKE = 48  # restarts that are compared with each other, at most


class Consensus(NamedTuple):
    """The labels that restarts agree on, or those of the most typical restart."""

    labels: np.ndarray  # (n,) int64 in 0..K-1
    agreement: np.ndarray  # (n,) float32: share of restarts that, matched to the labels, give the spot this label
    similarity: float  # mean ARI between two restarts, of 48 at most; NaN for a single one
    pair_agreement: float  # chance that two restarts, matched to the labels, agree on a spot; 1 for a single one
    collapsed: int | None = None  # number of classes left, where the labels are those of one restart for that reason


class _Profiles(NamedTuple):
    """The labels that spots have from all restarts; spots with the same ones are one profile."""

    labels: np.ndarray  # (u, R) int32
    weight: np.ndarray  # (u,): spots
    where: np.ndarray  # (n,): each spot's profile


class _Classes(NamedTuple):
    """Latent classes of some spots."""

    gamma: np.ndarray  # (u, K)
    table: np.ndarray  # (R, K, K): log pi [restart, label, class]
    share: np.ndarray  # (K,): log p
    likelihood: float


def consensus(restarts: Sequence[np.ndarray], k: int) -> Consensus:
    """Return the consensus of several labellings (n,) of the same spots, each in 0..k-1.

    Runs of EM go on side by side, each on one thread. Call inside `spatialpdvi.runtime.threads.single_threaded`.
    """
    votes = np.stack(restarts)
    some = some_rows(votes.T, 0, _COMPARED).T
    sampled = _profiles(some, k)

    def run(own: int) -> _Classes:
        return _expect(sampled, _weighted(sampled.labels[:, own], k))

    # the best is run once more, since the tables of twenty runs would take much memory
    tried = _spread(len(votes), _EM_STARTS).tolist()
    classes = run(tried[int(np.argmax(on_threads(lambda own: run(own).likelihood, tried)))])
    many = _profiles(some_rows(votes.T, 0, _LEARNT_FROM).T, k)
    gamma, _ = _posterior(many, classes.table, classes.share)
    classes = _expect(many, gamma)
    is_whole = many.where.size == votes.shape[1]
    labels = classes.gamma.argmax(axis=1)[many.where] if is_whole else _labels(votes, classes, k)
    alike = _spread(len(votes), _ALIKE)
    similarity = _similarity(some[alike])
    typical = votes[alike[similarity.mean(axis=1).argmax()]]
    left, collapsed = np.unique(labels).size, None
    if left < _LEFT * np.unique(typical).size:
        labels, collapsed = typical.astype(np.int64), left
    agreement, pair_agreement = _agreement(votes, labels, k)
    return Consensus(labels, agreement, _mean_similarity(similarity), pair_agreement, collapsed)


def _spread(n_restarts: int, most: int) -> np.ndarray:
    """Numbers of at most so many restarts, evenly among all."""
    return np.unique(np.linspace(0, n_restarts - 1, most).round().astype(int))


def _labels(votes: np.ndarray, classes: _Classes, k: int) -> np.ndarray:
    """Return the class (n,) of each spot, block by block."""
    labels = np.empty(votes.shape[1], dtype=np.int64)
    for block in slices(labels.size, _BLOCK):
        profiles = _profiles(votes[:, block], k)
        labels[block] = _posterior(profiles, classes.table, classes.share)[0].argmax(axis=1)[profiles.where]
    return labels


def match_labels(labels: np.ndarray, reference: np.ndarray, k: int) -> np.ndarray:
    """Return the permutation (k,) that takes labels to those of the reference with the most spots in common."""
    return np.asarray(linear_sum_assignment(-overlap(labels, reference, shape=(k, k)))[1], dtype=np.int64)


def renumbered(posterior: np.ndarray, labels: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return a posterior (n, K) with its domains, which have these labels (n,), in the numbers of a reference (n,)."""
    matched = np.empty_like(posterior)
    matched[:, match_labels(labels, reference, posterior.shape[1])] = posterior
    return matched


def vote_shares(votes: Sequence[np.ndarray], labels: np.ndarray, k: int) -> np.ndarray:
    """Return the share (n, k) float32 of the labellings (n,) that, matched to labels (n,), place a spot in a domain."""
    shares = np.empty((labels.size, k), dtype=np.float32)
    for block, counts in _counts(votes, labels, k):
        shares[block] = counts / len(votes)
    return shares


def _counts(votes: Sequence[np.ndarray] | np.ndarray, labels: np.ndarray, k: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield how many votes, matched to the labels (n,), each spot of a block has for each class: the block, (m, k)."""
    matching = [match_labels(own, labels, k) for own in votes]
    for block in slices(labels.size, _BLOCK):
        counts = np.zeros((labels[block].size, k), dtype=np.int64)
        spots = np.arange(len(counts))
        for own, matched in zip(votes, matching, strict=True):
            counts[spots, matched[own[block]]] += 1
        yield block, counts


def _agreement(votes: np.ndarray, labels: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """Share (n,) of the restarts that, matched to the labels, agree with them; share of pairs of restarts that agree.

    The labels were made from the restarts, so that their agreement is too high; two restarts are independent.
    """
    n_restarts, n = votes.shape
    pairs, same = 0, np.zeros(n, dtype=np.float32)
    for block, counts in _counts(votes, labels, k):
        same[block] = counts[np.arange(len(counts)), labels[block]]
        pairs += int((counts * (counts - 1)).sum())
    pair_agreement = pairs / (n * n_restarts * (n_restarts - 1)) if n_restarts > 1 else 1.0
    return (same / n_restarts).astype(np.float32), pair_agreement


def _similarity(votes: np.ndarray) -> np.ndarray:
    """ARI (R, R) between labellings."""
    similarity = np.eye(len(votes))
    for a in range(len(votes)):
        for b in range(a):
            similarity[a, b] = similarity[b, a] = adjusted_rand_index(votes[a], votes[b])
    return similarity


def _mean_similarity(similarity: np.ndarray) -> float:
    """Mean ARI between two labellings."""
    pairs = similarity[np.tril_indices(len(similarity), -1)]
    return float(np.mean(pairs)) if pairs.size else float("nan")


def _profiles(votes: np.ndarray, k: int) -> _Profiles:
    labels, where, weight = _distinct_columns(votes, k)
    return _Profiles(np.ascontiguousarray(labels, dtype=np.int32), weight.astype(np.float64), where)


def _distinct_columns(votes: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Different columns of votes (R, n) as rows in lexicographic order, each column's place among them, their numbers.

    Labels are packed into as few 64-bit numbers as hold them, most significant first: sorting these is several times
    faster than `numpy.unique` of rows, with the same result.
    """
    n_restarts, n = votes.shape
    kind = np.dtype(">u1" if k <= 1 << 8 else ">u2" if k <= 1 << 16 else ">u4")
    width = 8 // kind.itemsize
    packed = np.zeros((n, -(-n_restarts // width) * width), dtype=kind)
    packed[:, :n_restarts] = votes.T
    keys = packed.view(">u8").astype(np.uint64)
    order = np.lexsort(keys.T[::-1])
    ordered = keys[order]
    first = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])
    where = np.empty(n, dtype=np.int64)
    where[order] = np.cumsum(first) - 1
    return votes.T[order[first]], where, np.diff(np.append(np.flatnonzero(first), n))


def _weighted(labels: np.ndarray, k: int) -> np.ndarray:
    """Gamma (u, k) with most of the weight on a restart's own labels (u,)."""
    gamma = np.full((labels.size, k), (1.0 - _OWN_LABEL) / k)
    gamma[np.arange(labels.size), labels] += _OWN_LABEL
    return gamma


def _expect(profiles: _Profiles, gamma: np.ndarray) -> _Classes:
    """Run EM from gamma (u, K) until it settles."""
    n_restarts, k = profiles.labels.shape[1], gamma.shape[1]
    power = min(1.0 / np.sqrt(n_restarts), _WITNESSES / n_restarts)
    given = np.empty((n_restarts, k, k))
    for _ in range(_STEPS):
        label_weights(profiles.labels, gamma, profiles.weight, given)
        share = np.log(given[0].sum(axis=0) / profiles.weight.sum() + 1e-9)
        given += 0.5
        table = np.log(given / given.sum(axis=1, keepdims=True)) * power
        before = gamma
        gamma, likelihood = _posterior(profiles, table, share)
        if np.abs(gamma - before).max() < _SETTLED:
            break
    return _Classes(gamma, table, share, likelihood)


def _posterior(profiles: _Profiles, table: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, float]:
    """Gamma (u, K) given the classes, and the (tempered) log likelihood of all labels."""
    gamma, value = np.empty((len(profiles.labels), share.size)), np.empty(len(profiles.labels))
    class_scores(profiles.labels, table, share, gamma)
    posteriors(gamma, value)
    return gamma, float((profiles.weight * value).sum())
