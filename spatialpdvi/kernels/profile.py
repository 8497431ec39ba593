"""The hot loop of the profile objective: the posteriors that follow given means of a quantity."""

import numpy as np
from numba import prange

from spatialpdvi.kernels.dispatch import compiled, parallel_if_large
from spatialpdvi.kernels.posteriors import LEAST, softmax_rows
from spatialpdvi.kernels.simd import WIDTH, fill, fma, largest, load, log, pairwise_sum, plus, store, upper

__all__ = ["follow_means"]

_MOST_SWEEPS = 200


@compiled
def _logits(i, own, linear, square, y, t, indptr, indices, r, phi, out):
    """Write the logits of spot i: its own, what its value says of the means, and the pull of its neighbours.

    Returns the largest.
    """
    n_domains = own.shape[1]
    top = fill(-np.inf)
    for k in range(0, n_domains, WIDTH):
        left = n_domains - k
        logit = fma(fill(y), load(linear, k, left, 0.0), load(own, i * n_domains + k, left, -np.inf))
        logit = fma(fill(-t), load(square, k, left, 0.0), logit)
        for e in range(indptr[i], indptr[i + 1]):
            logit = fma(fill(r[e]), load(phi, np.int64(indices[e]) * n_domains + k, left, 0.0), logit)
        store(out, k, left, logit)
        top = upper(top, logit)
    return largest(top)


@parallel_if_large(lambda own, linear, *rest: 20 * own.size * len(linear))
def follow_means(own, linear, square, values, exposure, indptr, indices, r, start, settled, found, sums, exposures):
    """Maximise ``sum phi (own + y linear - t square - log phi) + 1/2 phi R phi`` over posteriors, for several means.

    Spots are updated one after the other, so that no update makes the sum smaller; after the first sweep those alone of
    which a neighbour's posterior has moved by more than ``settled``. Writes the maximum of each row of means, and the
    sums of phi y and phi t.
    """
    # IN own (n, K), linear, square (p, K), values, exposure (n,), CSR graph R (n, n), start (n, K), all float64
    # OUT found (p,), sums, exposures (p, K)
    n, n_domains = own.shape
    for p in prange(len(linear)):
        phi, mean, mean_square, of_values, of_exposure = start.copy(), linear[p], square[p], sums[p], exposures[p]
        new, row, tops = np.empty((1, n_domains)), np.zeros(1, dtype=np.int64), np.empty(1)
        is_due = np.ones(n, dtype=np.bool_)
        for _ in range(_MOST_SWEEPS):
            is_over = True
            for i in range(n):
                if not is_due[i]:
                    continue
                is_due[i] = False
                y, t = values[i], exposure[i]
                tops[0] = _logits(i, own, mean, mean_square, y, t, indptr, indices, r, phi, new)
                softmax_rows(row, 0, 1, new, tops)
                moved = 0.0
                for k in range(n_domains):
                    moved = max(moved, abs(new[0, k] - phi[i, k]))
                    phi[i, k] = new[0, k]
                if moved > settled:
                    is_over = False
                    for e in range(indptr[i], indptr[i + 1]):
                        is_due[indices[e]] = True
            if is_over:
                break
        value = 0.0
        of_values[:] = 0.0
        of_exposure[:] = 0.0
        for i in range(n):
            y, t = values[i], exposure[i]
            inside = fill(0.0)
            for k in range(0, n_domains, WIDTH):
                left = n_domains - k
                q = load(phi, i * n_domains + k, left, 0.0)
                pull = fill(0.0)
                for e in range(indptr[i], indptr[i + 1]):
                    pull = fma(fill(r[e]), load(phi, np.int64(indices[e]) * n_domains + k, left, 0.0), pull)
                term = fma(fill(0.5), pull, load(own, i * n_domains + k, left, 0.0))
                term = fma(fill(y), load(mean, k, left, 0.0), term)
                term = fma(fill(-t), load(mean_square, k, left, 0.0), term)
                term = fma(fill(-1.0), log(upper(q, fill(LEAST))), term)
                inside = plus(inside, fma(q, term, fill(0.0)))
                store(of_values, k, left, fma(fill(y), q, load(of_values, k, left, 0.0)))
                store(of_exposure, k, left, fma(fill(t), q, load(of_exposure, k, left, 0.0)))
            value += pairwise_sum(inside)
        found[p] = value
