"""Posteriors of a few spots from what they and their neighbours say: the inner loops of the sweeps.

What holds for `spatialpdvi.kernels.mixture` holds here too. A spot's row of ``phi`` is its own scratch space in a
sweep: no other spot of its colour reads it.
"""

import numpy as np

from spatialpdvi.kernels.dispatch import compiled
from spatialpdvi.kernels.simd import WIDTH, exp, fill, fma, largest, load, minus, over, pairwise_sum, plus, store, upper

__all__ = ["LEAST", "TILE", "logits", "softmax_rows", "update"]

LEAST = 1e-300  # of what a logarithm is taken, such as the relative likelihood of a domain: it needs a normal number
TILE = 8  # spots whose posteriors are computed together


@compiled
def _pull(start, out, i, k, indptr, indices, r, phi, halo):
    """Write ``start_i + sum_j r_ij phi_j`` for domains ``k`` to ``k + 23`` of spot ``i``; return the maxima of lanes.

    The sum is the full Potts pull of the neighbours, not half of it, and no start counts as 0. Three vectors are summed
    together, because each alone would wait for its own last sum; vectors beyond the end of a row cost next to nothing.
    """
    n_own, n_domains = phi.shape
    here, left = i * n_domains + k, n_domains - k
    if start is None:  # a pull is never below 0: lanes beyond the end of a row do not change the largest
        a0 = fill(0.0)
        a1 = a0
        a2 = a0
    else:
        a0 = load(start, here, left, -np.inf)
        a1 = load(start, here + WIDTH, left - WIDTH, -np.inf)
        a2 = load(start, here + 2 * WIDTH, left - 2 * WIDTH, -np.inf)
    for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
        j = np.int64(indices[e])
        weight = fill(r[e])
        if j < n_own:
            row = j * n_domains + k
            a0 = fma(weight, load(phi, row, left, 0.0), a0)
            a1 = fma(weight, load(phi, row + WIDTH, left - WIDTH, 0.0), a1)
            a2 = fma(weight, load(phi, row + 2 * WIDTH, left - 2 * WIDTH, 0.0), a2)
        else:
            row = (j - n_own) * n_domains + k
            a0 = fma(weight, load(halo, row, left, 0.0), a0)
            a1 = fma(weight, load(halo, row + WIDTH, left - WIDTH, 0.0), a1)
            a2 = fma(weight, load(halo, row + 2 * WIDTH, left - 2 * WIDTH, 0.0), a2)
    store(out, here, left, a0)
    store(out, here + WIDTH, left - WIDTH, a1)
    store(out, here + 2 * WIDTH, left - 2 * WIDTH, a2)
    return upper(upper(a0, a1), a2)


@compiled
def logits(rows, first, last, data_term, indptr, indices, r, halo, phi, out, tops):
    """Write the logits of ``rows[first:last]`` to ``out``, which may be ``phi``, and their maxima to ``tops``."""
    for a in range(first, last):
        i = np.int64(rows[a])
        top = fill(-np.inf)
        for k in range(0, phi.shape[1], 3 * WIDTH):
            top = upper(top, _pull(data_term, out, i, k, indptr, indices, r, phi, halo))
        tops[a - first] = largest(top)


@compiled
def softmax_rows(rows, first, last, out, tops, factors=None):
    """Turn logits into probabilities in ``rows[first:last]`` of ``out``; their exponentials may have factors (n, K).

    ``tops`` are the maxima, against overflow; they become the sums of the exponentials of what the logits lack to them.
    """
    n_domains = out.shape[1]
    for a in range(first, last):
        top = fill(tops[a - first])
        total = fill(0.0)
        for k in range(0, n_domains, WIDTH):
            here, left = np.int64(rows[a]) * n_domains + k, n_domains - k
            e = exp(minus(load(out, here, left, -np.inf), top))
            if factors is not None:
                e = fma(e, upper(load(factors, here, left, 0.0), fill(LEAST)), fill(0.0))
            total = plus(total, e)
            store(out, here, left, e)
        tops[a - first] = pairwise_sum(total)
    for a in range(first, last):
        total = fill(tops[a - first])
        for k in range(0, n_domains, WIDTH):
            here, left = np.int64(rows[a]) * n_domains + k, n_domains - k
            store(out, here, left, over(load(out, here, left, 0.0), total))


@compiled
def _short_pull(start, i, indptr, indices, r, phi, halo):
    """As `_pull`, for a row that is one vector, which is returned and not written."""
    n_own, n_domains = phi.shape
    pull = fill(0.0) if start is None else load(start, i * n_domains, n_domains, -np.inf)
    for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
        j = np.int64(indices[e])
        if j < n_own:
            pull = fma(fill(r[e]), load(phi, j * n_domains, n_domains, 0.0), pull)
        else:
            pull = fma(fill(r[e]), load(halo, (j - n_own) * n_domains, n_domains, 0.0), pull)
    return pull


@compiled
def _update_short(rows, first, last, data_term, indptr, indices, r, halo, phi, relative):
    """Do what `update` does, with the same bits, for rows of at most eight domains.

    Such a row stays in registers from its logits to its probabilities: a load soon after stores of parts of the same
    row would wait for them.
    """
    n_domains = phi.shape[1]
    exists = load(np.ones(WIDTH), 0, n_domains, 0.0)  # lanes beyond the end of a row count as nothing
    for a in range(first, last):
        i = np.int64(rows[a])
        e = _short_pull(data_term, i, indptr, indices, r, phi, halo)
        e = exp(minus(e, fill(largest(e))))
        if relative is not None:
            e = fma(e, upper(load(relative, i * n_domains, n_domains, 0.0), fill(LEAST)), fill(0.0))
        e = fma(e, exists, fill(0.0))
        store(phi, i * n_domains, n_domains, over(e, fill(pairwise_sum(e))))


@compiled
def update(rows, first, last, data_term, indptr, indices, r, halo, phi, relative=None):
    """Update the posteriors of ``rows[first:last]``, spots that share no edge, `TILE` at a time.

    Each step is done for a whole tile before the next step, so that the processor can work on other spots while one
    waits for its largest logit or its sum.
    """
    if phi.shape[1] <= WIDTH:
        _update_short(rows, first, last, data_term, indptr, indices, r, halo, phi, relative)
        return
    tops = np.empty(TILE)
    for start in range(first, last, TILE):
        stop = min(start + TILE, last)
        logits(rows, start, stop, data_term, indptr, indices, r, halo, phi, phi, tops)
        softmax_rows(rows, start, stop, phi, tops, relative)
