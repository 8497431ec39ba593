"""The hot loops of the Potts-Gaussian mixture: data term, Potts sweep, sufficient statistics, objective.

They know one patch at a time, as arrays; how patches are cut and which solver calls must not matter here.

Implementation notes
--------------------
- Results have the same bits for any number of threads: a loop over spots writes only each spot's own row, and sums over
  spots run over ``N_CHUNKS`` fixed chunks, whose partial sums are added in order. Nothing is chunked by thread count.
- Features may be float32; every product and sum is float64. ``fastmath`` is off, because it reorders sums.
- Domains are contiguous in memory and are processed eight at a time (`spatialpdvi.kernels.simd`). No sum over spots,
  features or neighbours is reordered; sums over domains are pairwise on every processor.
- Operations that depend on their own last result (a chain of sums, a largest logit, an exponential) are interleaved
  over several spots, features or vectors, so that the processor need not wait.
- A sweep goes colour by colour. Spots of one colour share no edge, so updating them in parallel *is* a Gauss-Seidel
  order and cannot raise the objective; updating all spots at once can fall into a two-cycle.
- Each step of a sweep is in `spatialpdvi.kernels.posteriors`.
"""

import numpy as np
from numba import prange

from spatialpdvi.kernels.dispatch import compiled, parallel_if_large
from spatialpdvi.kernels.posteriors import LEAST, TILE, logits, softmax_rows, update
from spatialpdvi.kernels.simd import (
    WIDTH,
    exp,
    fill,
    fma,
    largest,
    load,
    log,
    minus,
    over,
    pairwise_sum,
    plus,
    store,
    upper,
)

__all__ = [
    "N_CHUNKS",
    "add_chunks",
    "copy",
    "data_term_csr",
    "data_term_dense",
    "evaluate_spots",
    "log_likelihoods",
    "movement",
    "relative_likelihoods",
    "responsibilities",
    "settle",
    "statistics_csr",
    "statistics_dense",
    "sweep",
    "sweep_cells",
    "sweep_relative",
    "terms_of_colour",
    "transpose",
]

N_CHUNKS = 8  # of spots, per patch: enough for 8 threads, few enough that partial sums need little memory
_NEGLIGIBLE = 1e-30  # a smaller probability adds less than 1e-28 nats to the entropy
_PART = 64  # spots of a colour that one thread takes at a time
_TOGETHER = 512  # spots whose posteriors and features stay in the cache while all their sums are made
_MOVED = 1e-3  # total variation distance from which a spot's neighbours are updated again
_AGAIN = 5  # updates of `settle` for each spot of a patch on average, at most


@parallel_if_large(lambda x, weight, offset, out: x.size * -(-offset.size // WIDTH))
def data_term_dense(x, weight, offset, out):
    """Compute the expected log-likelihood of each spot in each domain from dense features (E2).

    ``out[i, k] = sum_f x[i, f] weight[f, k] - offset[k]``
    """
    # IN x (n, d), weight (d, K) float64, offset (K,) float64; OUT out (n, K) float64
    n, d = x.shape
    n_domains = offset.size
    for g in prange((n + 3) // 4):
        # four spots share each load of the weights; beyond the last spot, the last is computed again
        i0 = 4 * g
        i1, i2, i3 = min(i0 + 1, n - 1), min(i0 + 2, n - 1), min(i0 + 3, n - 1)
        for k in range(0, n_domains, WIDTH):
            left = n_domains - k
            a0 = minus(fill(0.0), load(offset, k, left, 0.0))
            a1 = a0
            a2 = a0
            a3 = a0
            for f in range(d):
                w = load(weight, f * n_domains + k, left, 0.0)
                a0 = fma(fill(np.float64(x[i0, f])), w, a0)
                a1 = fma(fill(np.float64(x[i1, f])), w, a1)
                a2 = fma(fill(np.float64(x[i2, f])), w, a2)
                a3 = fma(fill(np.float64(x[i3, f])), w, a3)
            store(out, i0 * n_domains + k, left, a0)
            store(out, i1 * n_domains + k, left, a1)
            store(out, i2 * n_domains + k, left, a2)
            store(out, i3 * n_domains + k, left, a3)


@parallel_if_large(lambda data, indices, indptr, weight, offset, out: int(indptr[-1] - indptr[0]) * offset.size)
def data_term_csr(data, indices, indptr, weight, offset, out):
    """`data_term_dense` for features in CSR form: only stored values are visited."""
    # IN data, indices (nnz,), indptr (n + 1,), weight (d, K), offset (K,); OUT out (n, K)
    n = indptr.size - 1
    n_domains = offset.size
    for i in prange(n):
        row = out[i]
        for k in range(n_domains):
            row[k] = -offset[k]
        for e in range(indptr[i], indptr[i + 1]):
            value = np.float64(data[e])
            w = weight[indices[e]]
            for k in range(n_domains):
                row[k] += value * w[k]


@parallel_if_large(lambda logs, tops: 4 * logs.size)
def relative_likelihoods(logs, tops):
    """Turn the log-likelihoods of states into likelihoods relative to each spot's most likely state (C2).

    ``logs[i, c] <- exp(logs[i, c] - tops[i])`` with ``tops[i] = max_c logs[i, c]``
    """
    # IN/OUT logs (n, C); OUT tops (n,)
    n, n_states = logs.shape
    for tile in prange((n + TILE - 1) // TILE):
        first = TILE * tile
        last = min(first + TILE, n)
        for i in range(first, last):
            top = fill(-np.inf)
            for c in range(0, n_states, WIDTH):
                top = upper(top, load(logs, i * n_states + c, n_states - c, -np.inf))
            tops[i] = largest(top)
        for i in range(first, last):
            top = fill(tops[i])
            for c in range(0, n_states, WIDTH):
                here, left = i * n_states + c, n_states - c
                store(logs, here, left, exp(minus(load(logs, here, left, -np.inf), top)))


@parallel_if_large(lambda mixed, tops: 4 * mixed.size)
def log_likelihoods(mixed, tops):
    """Turn the relative likelihoods of domains into log-likelihoods: ``mixed[i, k] <- log mixed[i, k] + tops[i]``."""
    # IN/OUT mixed (n, K); IN tops (n,)
    n, n_domains = mixed.shape
    for i in prange(n):
        top = fill(tops[i])
        for k in range(0, n_domains, WIDTH):
            here, left = i * n_domains + k, n_domains - k
            value = upper(load(mixed, here, left, 1.0), fill(LEAST))
            store(mixed, here, left, plus(log(value), top))


@parallel_if_large(lambda phi, mixed: phi.size)
def responsibilities(phi, mixed):
    """Divide posteriors by the relative likelihoods of domains: ``mixed[i, k] <- phi[i, k] / mixed[i, k]``."""
    # IN phi (n, K); IN/OUT mixed (n, K)
    n, n_domains = mixed.shape
    for i in prange(n):
        for k in range(0, n_domains, WIDTH):
            here, left = i * n_domains + k, n_domains - k
            value = upper(load(mixed, here, left, 1.0), fill(LEAST))
            store(mixed, here, left, over(load(phi, here, left, 0.0), value))


def _terms(data_term, indptr, indices, *rest):
    """Half the terms of a sweep; an exponential counts as about eight terms."""
    return (indices.size + 8 * indptr.size) * data_term.shape[1] // 2


def terms_of_colour(data_term, indptr, indices, r, halo, colour_start, phi):
    """Half the terms of the spots of one colour, which a sweep updates in one parallel region."""
    return _terms(data_term, indptr, indices) // max(1, colour_start.size - 1)


@parallel_if_large(terms_of_colour)
def sweep(data_term, indptr, indices, r, halo, colour_start, phi):
    """Update the posterior of every spot once, colour by colour, in place (E3)."""
    # IN data_term (n, K), CSR graph of the patch with halo columns from n on, r >= 0, halo (n_halo, K),
    # colour_start (n_colours + 1,) first row of each colour; IN/OUT phi (n, K)
    rows = np.arange(data_term.shape[0])
    for c in range(colour_start.size - 1):
        start, stop = colour_start[c], colour_start[c + 1]
        for part in prange((stop - start + _PART - 1) // _PART):
            first = start + _PART * part
            update(rows, first, min(first + _PART, stop), data_term, indptr, indices, r, halo, phi)


@parallel_if_large(terms_of_colour)
def sweep_relative(relative, indptr, indices, r, halo, colour_start, phi):
    """Do what `sweep` does, given the relative likelihoods of domains, without their logarithms.

    ``phi_ik ~ relative_ik exp(sum_j r_ij phi_jk)``, where exponentials are relative to that of the largest pull. The
    domain with this pull has `LEAST` at least, so that no sum vanishes, even where all others do.
    """
    # IN relative (n, K), the rest as in sweep; IN/OUT phi (n, K)
    rows = np.arange(relative.shape[0])
    for c in range(colour_start.size - 1):
        start, stop = colour_start[c], colour_start[c + 1]
        for part in prange((stop - start + _PART - 1) // _PART):
            first = start + _PART * part
            update(rows, first, min(first + _PART, stop), None, indptr, indices, r, halo, phi, relative)


@parallel_if_large(_terms)
def sweep_cells(data_term, indptr, indices, r, halo, rows, starts, waves, phi):
    """Do what `sweep` does, with the same bits and fewer waits: a wave's cells in parallel, each cell colour by colour.

    As in `sweep`, a spot is updated after its neighbours of lower colours and before those of higher colours
    (`spatialpdvi.graph.patches.Cells`).
    """
    # IN as in sweep; rows (n,) sorted by wave, cell and colour; starts (n_cells, n_colours + 1) into rows; waves
    # (n_waves + 1,) into cells; IN/OUT phi (n, K)
    for w in range(waves.size - 1):
        for g in prange(waves[w], waves[w + 1]):
            for c in range(starts.shape[1] - 1):
                update(rows, starts[g, c], starts[g, c + 1], data_term, indptr, indices, r, halo, phi)


@compiled
def _change(phi, i, before, a):
    """How far the posterior of spot ``i`` is from ``before[a]``: twice their distance in total variation."""
    change = 0.0
    for k in range(phi.shape[1]):
        change += abs(phi[i, k] - before[a, k])
    return change


@compiled
def _await_update(a, i, before, phi, indptr, indices, waiting):
    """Mark the neighbours of spot ``i`` within the patch if its posterior has moved from ``before[a]``."""
    if 0.5 * _change(phi, i, before, a) > _MOVED:
        for e in range(indptr[i], indptr[i + 1]):
            if indices[e] < waiting.size:
                waiting[indices[e]] = True


@compiled
def settle(data_term, indptr, indices, r, halo, colour_start, before, phi):
    """Update spots again whose neighbours have moved, until none moves or the limit is reached, in place (E3).

    A sweep moves a border by a few spots, and then the rest of the patch waits for the next. Here a border goes on,
    while spots at rest cost nothing. Spots are updated in passes, colour by colour as in `sweep`.
    """
    # IN as in sweep, before (n, K) the posteriors before the sweep, overwritten; IN/OUT phi (n, K) after it
    n = phi.shape[0]
    waiting, rows = np.zeros(n, dtype=np.bool_), np.empty(n, dtype=np.int64)
    for i in range(n):
        _await_update(i, i, before, phi, indptr, indices, waiting)
    left = _AGAIN * n
    while left > 0:
        done = 0
        for c in range(colour_start.size - 1):
            size = 0
            for i in range(colour_start[c], colour_start[c + 1]):
                if waiting[i]:
                    waiting[i] = False
                    rows[size] = i
                    before[size] = phi[i]
                    size += 1
            update(rows, 0, size, data_term, indptr, indices, r, halo, phi)
            for a in range(size):
                _await_update(a, rows[a], before, phi, indptr, indices, waiting)
            done += size
        if done == 0:
            break
        left -= done


@compiled
def add_chunks(parts, out):
    """Add up sums over spots by chunks (N_CHUNKS, ...), in order: NumPy's depends on how many there are."""
    by_chunk, flat = parts.reshape((N_CHUNKS, out.size)), out.reshape(out.size)
    for a in range(out.size):
        flat[a] = 0.0
        for chunk in range(N_CHUNKS):
            flat[a] += by_chunk[chunk, a]


@compiled
def copy(rows, out):
    """Copy rows, such as posteriors (n, K), to another array, perhaps of another type of numbers."""
    for i in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            out[i, k] = rows[i, k]


@compiled
def transpose(rows, out):
    """Write the transpose, such as compositions (K, C) as (C, K)."""
    for k in range(rows.shape[0]):
        for c in range(rows.shape[1]):
            out[c, k] = rows[k, c]


@parallel_if_large(lambda before, phi, sums: phi.size)
def movement(before, phi, sums):
    """Sum by chunks how far the posteriors have moved, in total variation: ``1/2 sum_ik |phi_ik - before_ik|``."""
    # IN before, phi (n, K); OUT sums (N_CHUNKS,) float64
    n = phi.shape[0]
    for c in prange(N_CHUNKS):
        total = 0.0
        for i in range(c * n // N_CHUNKS, (c + 1) * n // N_CHUNKS):
            total += _change(phi, i, before, i)
        sums[c] = 0.5 * total


@parallel_if_large(lambda x, phi, counts, sums: x.size * -(-phi.shape[1] // WIDTH))
def statistics_dense(x, phi, counts, sums):
    """Compute the sufficient statistics ``N_k = sum_i phi_ik`` and ``S_fk = sum_i phi_ik x_if`` by chunks (E4)."""
    # IN x (n, d), phi (n, K); OUT counts (N_CHUNKS, K), sums (N_CHUNKS, d, K), both float64 and set here
    n, d = x.shape
    n_domains = phi.shape[1]
    for c in prange(N_CHUNKS):
        counts[c, :] = 0.0
        sums[c, :, :] = 0.0
        for start in range(c * n // N_CHUNKS, (c + 1) * n // N_CHUNKS, _TOGETHER):
            stop = min(start + _TOGETHER, (c + 1) * n // N_CHUNKS)
            for k in range(0, n_domains, WIDTH):
                left = n_domains - k
                here = c * n_domains + k
                total = load(counts, here, left, 0.0)
                for i in range(start, stop):
                    total = plus(total, load(phi, i * n_domains + k, left, 0.0))
                store(counts, here, left, total)
                row = c * d * n_domains + k
                for f in range(0, d, 4):
                    # four features share each load of phi; beyond the last feature, the last is computed again
                    f1, f2, f3 = min(f + 1, d - 1), min(f + 2, d - 1), min(f + 3, d - 1)
                    s0 = load(sums, row + f * n_domains, left, 0.0)
                    s1 = load(sums, row + f1 * n_domains, left, 0.0)
                    s2 = load(sums, row + f2 * n_domains, left, 0.0)
                    s3 = load(sums, row + f3 * n_domains, left, 0.0)
                    for i in range(start, stop):
                        p = load(phi, i * n_domains + k, left, 0.0)
                        s0 = fma(p, fill(np.float64(x[i, f])), s0)
                        s1 = fma(p, fill(np.float64(x[i, f1])), s1)
                        s2 = fma(p, fill(np.float64(x[i, f2])), s2)
                        s3 = fma(p, fill(np.float64(x[i, f3])), s3)
                    store(sums, row + f * n_domains, left, s0)
                    store(sums, row + f1 * n_domains, left, s1)
                    store(sums, row + f2 * n_domains, left, s2)
                    store(sums, row + f3 * n_domains, left, s3)


@parallel_if_large(lambda data, indices, indptr, phi, counts, sums: int(indptr[-1] - indptr[0]) * phi.shape[1])
def statistics_csr(data, indices, indptr, phi, counts, sums):
    """`statistics_dense` for CSR features; sums are stored feature by domain, so that rows are contiguous."""
    # IN data, indices (nnz,), indptr (n + 1,), phi (n, K); OUT counts (N_CHUNKS, K), sums (N_CHUNKS, d, K)
    n = indptr.size - 1
    n_domains = phi.shape[1]
    for c in prange(N_CHUNKS):
        counts[c, :] = 0.0
        sums[c, :, :] = 0.0
        for i in range(c * n // N_CHUNKS, (c + 1) * n // N_CHUNKS):
            for k in range(n_domains):
                counts[c, k] += phi[i, k]
            for e in range(indptr[i], indptr[i + 1]):
                value = np.float64(data[e])
                total = sums[c, indices[e]]
                for k in range(n_domains):
                    total[k] += value * phi[i, k]


@parallel_if_large(_terms)
def evaluate_spots(data_term, indptr, indices, r, halo, phi, scratch, neg_elbo, residual):
    """Compute each spot's share of the objective, and the distance of its posterior from its own optimum (E1, E3).

    Half of each undirected edge is counted at either end, so patches sum to the whole. The residual is the total
    variation distance ``1/2 sum_k |phi_ik - softmax_k(...)|``, between 0 and 1; it is left out where there is no room
    for it.
    """
    # IN as in sweep, phi (n, K); OUT scratch (n, K), neg_elbo (n,), residual (n,) or (0,)
    n, n_domains = data_term.shape
    rows = np.arange(n)
    for tile in prange((n + TILE - 1) // TILE):
        first = TILE * tile
        last = min(first + TILE, n)
        tops = np.empty(TILE)
        logits(rows, first, last, data_term, indptr, indices, r, halo, phi, scratch, tops)
        for i in range(first, last):
            energy = fill(0.0)  # twice that of (E1): the logit contains the whole pull, of which half counts
            for k in range(0, n_domains, WIDTH):
                here, left = i * n_domains + k, n_domains - k
                both = plus(load(data_term, here, left, 0.0), load(scratch, here, left, 0.0))
                energy = fma(load(phi, here, left, 0.0), both, energy)
            value = -0.5 * pairwise_sum(energy)
            for k in range(n_domains):
                p = phi[i, k]
                if p > _NEGLIGIBLE:
                    value += p * np.log(p)
            neg_elbo[i] = value
        if residual.size == 0:
            continue
        softmax_rows(rows, first, last, scratch, tops)
        for i in range(first, last):
            distance = fill(0.0)
            for k in range(0, n_domains, WIDTH):
                here, left = i * n_domains + k, n_domains - k
                p, optimum = load(phi, here, left, 0.0), load(scratch, here, left, 0.0)
                distance = plus(distance, upper(minus(p, optimum), minus(optimum, p)))
            residual[i] = 0.5 * pairwise_sum(distance)
