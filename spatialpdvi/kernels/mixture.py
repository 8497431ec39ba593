"""The hot loops of the Potts-Gaussian mixture: data term, Potts sweep, sufficient statistics, objective.

Implementation notes
--------------------
- The same bits for any number of threads: a loop over spots writes each spot's own row, and sums over spots are
  taken over ``N_CHUNKS`` fixed chunks whose partial sums are added in order. Nothing is chunked by thread count.
- Features may be float32; every product and sum is float64. No ``fastmath``: it reorders sums.
- The inner loop runs over domains (or features, for the statistics), contiguous in memory, so that it vectorises
  without reordering any sum.
- A sweep goes colour by colour. Spots of one colour share no edge, so updating them side by side *is* a
  Gauss-Seidel order and cannot raise the objective; updating all spots at once can fall into a two-cycle.
- A spot's row of ``phi`` is its own scratch space in a sweep: nobody of its colour reads it.
"""

import numpy as np
from numba import prange

from spatialpdvi.kernels.compile import compiled
from spatialpdvi.kernels.twins import twins

__all__ = [
    "N_CHUNKS",
    "data_term_csr",
    "data_term_dense",
    "evaluate_spots",
    "statistics_csr",
    "statistics_dense",
    "sweep",
]

N_CHUNKS = 8  # of spots, per patch: enough for 8 threads, few enough that partial sums stay small


@twins(lambda x, weight, offset, out: x.shape[0] * weight.size)
def data_term_dense(x, weight, offset, out):
    """Expected log-likelihood of each spot in each domain, dense features (E2).

    ``out[i, k] = sum_f x[i, f] weight[f, k] - offset[k]``
    """
    # IN x (n, d), weight (d, K) float64, offset (K,) float64; OUT out (n, K) float64
    n, d = x.shape
    n_domains = offset.size
    for i in prange(n):
        row = out[i]
        for k in range(n_domains):
            row[k] = -offset[k]
        for f in range(d):
            value = np.float64(x[i, f])
            w = weight[f]
            for k in range(n_domains):
                row[k] += value * w[k]


@twins(lambda data, indices, indptr, weight, offset, out: (indptr[-1] - indptr[0]) * offset.size)
def data_term_csr(data, indices, indptr, weight, offset, out):
    """Twin of `data_term_dense` for features in CSR form: only stored values are touched."""
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


def _work_per_colour(data_term, indptr, indices, r, halo, colour_start, phi):
    """Inner iterations of one parallel region of a sweep; an exponential counts as some eight of them."""
    return (indices.size + 8 * indptr.size) * data_term.shape[1] / max(1, colour_start.size - 1)


@compiled
def _add_pull(row, i, indptr, indices, r, phi, halo):
    """Add the Potts pull of spot ``i``'s neighbours, ``sum_j r_ij phi_j``: the full sum, not half of it."""
    n_own = phi.shape[0]
    n_domains = row.size
    for e in range(indptr[i], indptr[i + 1]):
        j = indices[e]
        weight = r[e]
        if j < n_own:
            neighbour = phi[j]
        else:
            neighbour = halo[j - n_own]
        for k in range(n_domains):
            row[k] += weight * neighbour[k]


@compiled
def _softmax(row):
    """Replace logits by probabilities; the largest logit is subtracted first, so that nothing overflows."""
    n_domains = row.size
    top = row[0]
    for k in range(1, n_domains):
        top = max(top, row[k])
    total = 0.0
    for k in range(n_domains):
        row[k] = np.exp(row[k] - top)
        total += row[k]
    for k in range(n_domains):
        row[k] /= total


@twins(_work_per_colour)
def sweep(data_term, indptr, indices, r, halo, colour_start, phi):
    """Update every spot's posterior once, colour by colour, in place (E3)."""
    # IN data_term (n, K), CSR graph of the patch with halo columns from n on, r >= 0, halo (n_halo, K),
    # colour_start (n_colours + 1,); IN/OUT phi (n, K)
    n_domains = data_term.shape[1]
    for c in range(colour_start.size - 1):
        for i in prange(colour_start[c], colour_start[c + 1]):
            row = phi[i]
            for k in range(n_domains):
                row[k] = data_term[i, k]
            _add_pull(row, i, indptr, indices, r, phi, halo)
            _softmax(row)


@twins(lambda x, phi, counts, sums: phi.size * x.shape[1])
def statistics_dense(x, phi, counts, sums):
    """Chunked sufficient statistics ``N_k = sum_i phi_ik`` and ``S_kf = sum_i phi_ik x_if`` (E4)."""
    # IN x (n, d), phi (n, K); OUT counts (N_CHUNKS, K), sums (N_CHUNKS, K, d), both float64 and zeroed here
    n, d = x.shape
    n_domains = phi.shape[1]
    for c in prange(N_CHUNKS):
        counts[c, :] = 0.0
        sums[c, :, :] = 0.0
        for i in range(c * n // N_CHUNKS, (c + 1) * n // N_CHUNKS):
            for k in range(n_domains):
                p = phi[i, k]
                if p > 0.0:
                    counts[c, k] += p
                    total = sums[c, k]
                    for f in range(d):
                        total[f] += p * np.float64(x[i, f])


@twins(lambda data, indices, indptr, phi, counts, sums: (indptr[-1] - indptr[0]) * phi.shape[1])
def statistics_csr(data, indices, indptr, phi, counts, sums):
    """Twin of `statistics_dense` for CSR features; the sums come feature by domain, so that rows are contiguous."""
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


@twins(lambda data_term, indptr, indices, *rest: (indices.size + 8 * indptr.size) * data_term.shape[1])
def evaluate_spots(data_term, indptr, indices, r, halo, phi, scratch, neg_elbo, residual):
    """Per spot: its share of the objective, and how far its posterior is from its own optimum (E1, E3).

    Each undirected edge counts half at either end, so patches sum to the whole. The residual is the total
    variation distance ``1/2 sum_k |phi_ik - softmax_k(...)|``, between 0 and 1.
    """
    # IN as in sweep, phi (n, K); OUT scratch (n, K), neg_elbo (n,), residual (n,)
    n, n_domains = data_term.shape
    for i in prange(n):
        row = scratch[i]
        for k in range(n_domains):
            row[k] = 0.0
        _add_pull(row, i, indptr, indices, r, phi, halo)
        value = 0.0
        for k in range(n_domains):
            p = phi[i, k]
            if p > 0.0:
                value += p * (np.log(p) - data_term[i, k] - 0.5 * row[k])
            row[k] += data_term[i, k]
        neg_elbo[i] = value
        _softmax(row)
        distance = 0.0
        for k in range(n_domains):
            distance += abs(phi[i, k] - row[k])
        residual[i] = 0.5 * distance
