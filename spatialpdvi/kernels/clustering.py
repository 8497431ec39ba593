"""The loops of k-means, of a Gaussian mixture with one common covariance, and of a consensus of labels.

They know rows of features or labels, and neither seeds nor when to stop. What holds for `spatialpdvi.kernels.mixture`
holds here too: the same bits for any number of threads, and no sum over spots that is reordered.
"""

import numpy as np
from numba import prange

from spatialpdvi.kernels.dispatch import compiled, parallel_if_large, steps_of_loops
from spatialpdvi.kernels.mixture import N_CHUNKS, add_chunks, copy, data_term_dense, statistics_dense, transpose
from spatialpdvi.kernels.posteriors import TILE, softmax_rows
from spatialpdvi.kernels.simd import WIDTH, fill, fma, largest, load, minus, plus, store, upper

__all__ = [
    "class_scores",
    "distances_with",
    "fit_components",
    "label_weights",
    "linear_terms",
    "maximise",
    "most_likely",
    "move_centres",
    "posteriors",
    "seed_centres",
    "sums_by_label",
    "to_nearest",
]

_PART = 64  # spots that one thread takes at a time
_LEAST_COUNT = 10 * np.finfo(np.float64).eps  # spots of a component, added to each
_RESTARTS = 8  # whose tables stay in the cache while one thread reads all spots


@parallel_if_large(lambda x, centres, closest, out: x.size * -(-centres.shape[1] // WIDTH))
def distances_with(x, centres, closest, out):
    """Compute each spot's squared distance to the nearest centre, if one candidate were added to those there are.

    ``out[i, t] = min(closest[i], |x_i - c_t|^2)``
    """
    # IN x (n, d), centres (d, T) float64, closest (n,) float64; OUT out (n, T) float64
    n, d = x.shape
    n_candidates = centres.shape[1]
    for g in prange((n + 3) // 4):
        # four spots share each load of the centres; beyond the last spot, the last is computed again
        i0 = 4 * g
        i1, i2, i3 = min(i0 + 1, n - 1), min(i0 + 2, n - 1), min(i0 + 3, n - 1)
        for t in range(0, n_candidates, WIDTH):
            left = n_candidates - t
            a0 = fill(0.0)
            a1 = a0
            a2 = a0
            a3 = a0
            for f in range(d):
                centre = load(centres, f * n_candidates + t, left, 0.0)
                d0 = minus(fill(np.float64(x[i0, f])), centre)
                d1 = minus(fill(np.float64(x[i1, f])), centre)
                d2 = minus(fill(np.float64(x[i2, f])), centre)
                d3 = minus(fill(np.float64(x[i3, f])), centre)
                a0 = fma(d0, d0, a0)
                a1 = fma(d1, d1, a1)
                a2 = fma(d2, d2, a2)
                a3 = fma(d3, d3, a3)
            # the smaller of two is the larger of their negatives
            zero = fill(0.0)
            store(out, i0 * n_candidates + t, left, minus(zero, upper(minus(zero, a0), fill(-closest[i0]))))
            store(out, i1 * n_candidates + t, left, minus(zero, upper(minus(zero, a1), fill(-closest[i1]))))
            store(out, i2 * n_candidates + t, left, minus(zero, upper(minus(zero, a2), fill(-closest[i2]))))
            store(out, i3 * n_candidates + t, left, minus(zero, upper(minus(zero, a3), fill(-closest[i3]))))


@parallel_if_large(lambda x, weight, offset, labels: x.size * -(-offset.size // WIDTH))
def most_likely(x, weight, offset, labels):
    """Find the cluster in which each spot is most likely, the first of several.

    ``labels[i] = argmax_k (sum_f x[i, f] weight[f, k] - offset[k])``
    """
    # IN x (n, d), weight (d, K) float64, offset (K,) float64; OUT labels (n,)
    n, d = x.shape
    n_clusters = offset.size
    for part in prange((n + _PART - 1) // _PART):
        end = min(_PART * (part + 1), n)
        scores = np.empty((4, n_clusters))
        for i0 in range(_PART * part, end, 4):
            # four spots share each load of the weights; beyond the last spot, the last is computed again
            i1, i2, i3 = min(i0 + 1, end - 1), min(i0 + 2, end - 1), min(i0 + 3, end - 1)
            for k in range(0, n_clusters, WIDTH):
                left = n_clusters - k
                a0 = minus(fill(0.0), load(offset, k, left, 0.0))
                a1 = a0
                a2 = a0
                a3 = a0
                for f in range(d):
                    w = load(weight, f * n_clusters + k, left, 0.0)
                    a0 = fma(fill(np.float64(x[i0, f])), w, a0)
                    a1 = fma(fill(np.float64(x[i1, f])), w, a1)
                    a2 = fma(fill(np.float64(x[i2, f])), w, a2)
                    a3 = fma(fill(np.float64(x[i3, f])), w, a3)
                store(scores, k, left, a0)
                store(scores, n_clusters + k, left, a1)
                store(scores, 2 * n_clusters + k, left, a2)
                store(scores, 3 * n_clusters + k, left, a3)
            for i in range(i0, i3 + 1):
                best, top = 0, scores[i - i0, 0]
                for k in range(1, n_clusters):
                    score = scores[i - i0, k]
                    if score > top:
                        best, top = k, score
                labels[i] = best


@parallel_if_large(lambda x, labels, counts, sums: x.size)
def sums_by_label(x, labels, counts, sums):
    """Count the spots of each label and add up their features, by chunks."""
    # IN x (n, d), labels (n,); OUT counts (N_CHUNKS, K), sums (N_CHUNKS, K, d), both float64 and set here
    n, d = x.shape
    for c in prange(N_CHUNKS):
        counts[c, :] = 0.0
        sums[c, :, :] = 0.0
        for i in range(c * n // N_CHUNKS, (c + 1) * n // N_CHUNKS):
            counts[c, labels[i]] += 1.0
            total = sums[c, labels[i]]
            for f in range(d):
                total[f] += x[i, f]


# Up to `move_centres` all is loops: numba takes seconds to compile a few of NumPy's functions


@compiled
def _draw(x, closest, draws, drawn, candidates):
    """Draw spots by their squared distance to the nearest centre; ``candidates`` (d, T) are their features."""
    total = 0.0
    for i in range(closest.size):
        total += closest[i]
    for t in range(draws.size):
        limit, reach, i = draws[t] * total, closest[0], 0
        while reach < limit and i + 1 < closest.size:
            i += 1
            reach += closest[i]
        drawn[t] = i
        for f in range(x.shape[1]):
            candidates[f, t] = x[i, f]


@compiled
def _copy_column(x, i, candidates):
    """Make one spot all candidates."""
    for f in range(candidates.shape[0]):
        for t in range(candidates.shape[1]):
            candidates[f, t] = x[i, f]


@compiled
def _take(x, drawn, distance, closest, centre):
    """Take the candidate with the least sum of squared distances (n, T) to the nearest centre, the first of several."""
    best, least = 0, np.inf
    for t in range(distance.shape[1]):
        reached = 0.0
        for i in range(distance.shape[0]):
            reached += distance[i, t]
        if reached < least:
            best, least = t, reached
    for i in range(closest.size):
        closest[i] = distance[i, best]
    for f in range(centre.size):
        centre[f] = x[drawn[best], f]


@steps_of_loops(lambda x, first, draws, centres: x.size * -(-draws.shape[1] // WIDTH))
def seed_centres(x, first, draws, centres):
    """Choose the first centres of k-means by greedy k-means++.

    Of several candidates, that is taken which brings the spots nearest to a centre.
    """
    # IN x (n, d) float64, first a spot, draws (K - 1, T) in [0, 1); OUT centres (K, d)
    n, d = x.shape
    n_candidates = draws.shape[1]
    closest, drawn = np.full(n, np.inf), np.full(n_candidates, first)
    distance, candidates = np.empty((n, n_candidates)), np.empty((d, n_candidates))
    for c in range(centres.shape[0]):
        if c == 0:
            _copy_column(x, first, candidates)
        else:
            _draw(x, closest, draws[c - 1], drawn, candidates)
        distances_with(x, candidates, closest, distance)
        _take(x, drawn, distance, closest, centres[c])


@compiled
def _linear(centres):
    """Weights (d, K) and offsets (K,) by which the nearest centre is the most likely one.

    That is ``|x - c|^2`` by its products, about a point nearby, where few digits are lost.
    """
    k, d = centres.shape
    weight, offset = np.empty((d, k)), np.zeros(k)
    for f in range(d):
        middle = 0.0
        for c in range(k):
            middle += centres[c, f]
        middle /= k
        for c in range(k):
            weight[f, c] = centres[c, f] - middle
            offset[c] += weight[f, c] * (0.5 * weight[f, c] + middle)
    return weight, offset


@steps_of_loops(lambda x, centres, labels: x.size * -(-centres.shape[0] // WIDTH))
def to_nearest(x, centres, labels):
    """Find the nearest centre of each spot, the first of several."""
    # IN x (n, d), centres (K, d) float64; OUT labels (n,)
    weight, offset = _linear(centres)
    most_likely(x, weight, offset, labels)


@compiled
def _fill_empty(x, labels, centres, counts, sums):
    """Give each label without spots the spot that is farthest from its own centre, unless all spots are on theirs."""
    n, d = x.shape
    is_empty, any_empty = np.zeros(counts.size, dtype=np.bool_), False
    for k in range(counts.size):
        is_empty[k] = counts[k] == 0.0
        any_empty |= is_empty[k]
    if not any_empty:
        return
    distance = np.zeros(n)
    for i in range(n):
        for f in range(d):
            distance[i] += (x[i, f] - centres[labels[i], f]) ** 2
    least = 0.0  # where no spot is off its centre, there are no more than so many different spots
    for k in range(counts.size):
        if not is_empty[k]:
            continue
        farthest, top = -1, least
        for i in range(n):
            if distance[i] > top:
                farthest, top = i, distance[i]
        if farthest < 0:
            return
        least, distance[farthest] = -0.5, -1.0
        counts[labels[farthest]] -= 1.0
        counts[k] = 1.0
        for f in range(d):
            sums[labels[farthest], f] -= x[farthest, f]
            sums[k, f] = x[farthest, f]


@compiled
def _to_means(counts, sums, centres):
    """Move each centre that has spots to their mean; return the sum of the squares of all moves."""
    moved = 0.0
    for k in range(counts.size):
        if counts[k] > 0.0:
            for f in range(centres.shape[1]):
                mean = sums[k, f] / counts[k]
                moved += (mean - centres[k, f]) ** 2
                centres[k, f] = mean
    return moved


@compiled
def _replace(labels, new):
    """Copy the new labels over the old ones, and return whether they are the same."""
    same = True
    for i in range(labels.size):
        same &= labels[i] == new[i]
        labels[i] = new[i]
    return same


@steps_of_loops(lambda x, most, settled, centres, labels: x.size * -(-centres.shape[0] // WIDTH))
def move_centres(x, most, settled, centres, labels):
    """Move centres to the means of the spots that are nearest to them until they rest, at most so many times.

    They rest where no label changes, or where the squares of all moves add up to no more than ``settled``.
    """
    # IN x (n, d) float64; IN/OUT centres (K, d); OUT labels (n,) of the nearest
    k, d = centres.shape
    counts_of_chunks, sums_of_chunks = np.empty((N_CHUNKS, k)), np.empty((N_CHUNKS, k, d))
    counts, sums, new = np.empty(k), np.empty((k, d)), np.empty(labels.size, dtype=np.int64)
    to_nearest(x, centres, labels)
    for _ in range(most):
        sums_by_label(x, labels, counts_of_chunks, sums_of_chunks)
        add_chunks(counts_of_chunks, counts)
        add_chunks(sums_of_chunks, sums)
        _fill_empty(x, labels, centres, counts, sums)
        moved = _to_means(counts, sums, centres)
        to_nearest(x, centres, new)
        if _replace(labels, new) or moved <= settled:
            return


@parallel_if_large(lambda logs, value: 4 * logs.size)
def posteriors(logs, value):
    """Turn log-likelihoods of clusters into posteriors, in place; ``value[i]`` is the logarithm of the spot's sum."""
    # IN/OUT logs (n, K); OUT value (n,)
    n, n_clusters = logs.shape
    rows = np.arange(n)
    for tile in prange((n + TILE - 1) // TILE):
        first = TILE * tile
        last = min(first + TILE, n)
        tops = np.empty(TILE)
        for i in range(first, last):
            top = fill(-np.inf)
            for k in range(0, n_clusters, WIDTH):
                top = upper(top, load(logs, i * n_clusters + k, n_clusters - k, -np.inf))
            value[i] = largest(top)
            tops[i - first] = value[i]
        softmax_rows(rows, first, last, logs, tops)
        for i in range(first, last):
            value[i] += np.log(tops[i - first])


@compiled
def _factor(matrix, lower):
    """Factor a positive definite matrix (d, d) by Cholesky's method; return the logarithm of its determinant."""
    value = 0.0
    for f in range(matrix.shape[0]):
        for g in range(f + 1):
            left = matrix[f, g]
            for h in range(g):
                left -= lower[f, h] * lower[g, h]
            lower[f, g] = left / lower[g, g] if g < f else np.sqrt(left)
        value += 2.0 * np.log(lower[f, f])
    return value


@compiled
def _solve(lower, columns):
    """Multiply columns (d, q) by the inverse of the matrix that was factored, in place."""
    d, q = columns.shape
    for a in range(q):
        for f in range(d):
            left = columns[f, a]
            for g in range(f):
                left -= lower[f, g] * columns[g, a]
            columns[f, a] = left / lower[f, f]
        for f in range(d - 1, -1, -1):
            left = columns[f, a]
            for g in range(f + 1, d):
                left -= lower[g, f] * columns[g, a]
            columns[f, a] = left / lower[f, f]


@compiled
def linear_terms(share, means, covariance, lower, weight, offset):
    """Compute weights and offsets by which the likeliest component is the most likely cluster, up to a common term.

    ``sum_f x[i, f] weight[f, k] - offset[k] = log share[k] + m_k^T P x_i - 1/2 m_k^T P m_k``. Returns ``log |P^-1|``.
    """
    # IN share (K,), means (K, d), covariance P^-1 (d, d); OUT its factor lower (d, d), weight (d, K), offset (K,)
    k, d = means.shape
    value = _factor(covariance, lower)
    transpose(means, weight)
    _solve(lower, weight)
    for c in range(k):
        square = 0.0
        for f in range(d):
            square += means[c, f] * weight[f, c]
        offset[c] = 0.5 * square - np.log(share[c])
    return value


@compiled
def _trace(lower, squares, solved):
    """Compute the trace of ``P squares``, for the factor of ``P^-1``."""
    copy(squares, solved)
    _solve(lower, solved)
    trace = 0.0
    for f in range(solved.shape[0]):
        trace += solved[f, f]
    return trace


@compiled
def maximise(counts, sums, squares, ridge, share, means, covariance):
    """Compute the likeliest mixture from the spots of each component (K,), their sums and the sums of all products.

    The ridge is added to the diagonal of the covariance.
    """
    # IN counts (K,), sums (d, K), squares sum_i x_i x_i^T (d, d); OUT share (K,), means (K, d), covariance (d, d)
    k, d = means.shape
    total = 0.0
    for c in range(k):
        total += counts[c] + _LEAST_COUNT
    for c in range(k):
        share[c] = (counts[c] + _LEAST_COUNT) / total
        for f in range(d):
            means[c, f] = sums[f, c] / (counts[c] + _LEAST_COUNT)
    for f in range(d):
        for g in range(f + 1):
            left = squares[f, g]
            for c in range(k):
                left -= (counts[c] + _LEAST_COUNT) * means[c, f] * means[c, g]
            covariance[f, g] = left / total
            covariance[g, f] = covariance[f, g]
        covariance[f, f] += ridge


@compiled
def _mean(value):
    """The mean of (n,), added up in order."""
    total = 0.0
    for i in range(value.size):
        total += value[i]
    return total / value.size


@steps_of_loops(lambda x, squares, ridge, most, gained, share, means, covariance: x.size * -(-share.size // WIDTH))
def fit_components(x, squares, ridge, most, gained, share, means, covariance):
    """Fit a mixture of components with one covariance by EM, in at most so many steps.

    It ends where the log-likelihood changes by less than ``gained`` nats a spot.
    """
    # IN x (n, d) float64 about its mean, squares x^T x (d, d); IN/OUT share (K,), means (K, d), covariance (d, d)
    (n, d), k = x.shape, share.size
    weight, offset, gamma, value = np.empty((d, k)), np.empty(k), np.empty((n, k)), np.empty(n)
    lower, solved = np.empty((d, d)), np.empty((d, d))
    counts_of_chunks, sums_of_chunks = np.empty((N_CHUNKS, k)), np.empty((N_CHUNKS, d, k))
    counts, sums, likelihood = np.empty(k), np.empty((d, k)), -np.inf
    for _ in range(most):
        before = likelihood
        log_determinant = linear_terms(share, means, covariance, lower, weight, offset)
        data_term_dense(x, weight, offset, gamma)
        posteriors(gamma, value)
        likelihood = _mean(value) - 0.5 * (_trace(lower, squares, solved) / n + log_determinant)
        statistics_dense(x, gamma, counts_of_chunks, sums_of_chunks)
        add_chunks(counts_of_chunks, counts)
        add_chunks(sums_of_chunks, sums)
        maximise(counts, sums, squares, ridge, share, means, covariance)
        if abs(likelihood - before) < gained:
            return


@parallel_if_large(lambda labels, table, share, out: labels.size * -(-share.size // WIDTH))
def class_scores(labels, table, share, out):
    """Compute the log-likelihood of each class given the labels of a spot from all restarts.

    ``out[i, k] = share[k] + sum_r table[r, labels[i, r], k]``
    """
    # IN labels (n, R), table (R, L, K) float64, share (K,) float64; OUT out (n, K) float64
    n, n_restarts = labels.shape
    n_labels, n_classes = table.shape[1:]
    for i in prange(n):
        for k in range(0, n_classes, WIDTH):
            left = n_classes - k
            score = load(share, k, left, 0.0)
            for r in range(n_restarts):
                score = plus(score, load(table, (r * n_labels + np.int64(labels[i, r])) * n_classes + k, left, 0.0))
            store(out, i * n_classes + k, left, score)


@parallel_if_large(lambda labels, gamma, weight, sums: labels.size * -(-gamma.shape[1] // WIDTH))
def label_weights(labels, gamma, weight, sums):
    """Add up how much of each class the spots of each label have, restart by restart.

    ``sums[r, l, k] = sum_i weight[i] gamma[i, k] [labels[i, r] = l]``
    """
    # IN labels (n, R), gamma (n, K), weight (n,) float64; OUT sums (R, L, K) float64, set here
    n, n_restarts = labels.shape
    n_labels, n_classes = sums.shape[1:]
    for part in prange((n_restarts + _RESTARTS - 1) // _RESTARTS):
        first = _RESTARTS * part
        last = min(first + _RESTARTS, n_restarts)
        sums[first:last] = 0.0
        for i in range(n):
            of_spot = fill(weight[i])
            for k in range(0, n_classes, WIDTH):
                left = n_classes - k
                own = load(gamma, i * n_classes + k, left, 0.0)
                for r in range(first, last):
                    here = (r * n_labels + np.int64(labels[i, r])) * n_classes + k
                    store(sums, here, left, fma(of_spot, own, load(sums, here, left, 0.0)))
