"""Compiled loops against NumPy, serial against parallel, over types and odd sizes.

They need numba, NumPy, SciPy and pytest alone, so that CI can run them with several versions of numba.
"""

from itertools import pairwise

import numba
import numpy as np
import pytest
import scipy.sparse as sp

from spatialpdvi.graph.neighbors import mutual_knn
from spatialpdvi.graph.patches import make_patches
from spatialpdvi.kernels import mixture
from spatialpdvi.problems.features import wrap_features

INTERPRETED = bool(numba.config.DISABLE_JIT)  # loops take five hundred times as long then, in one thread
THREADS = range(1, 2 if INTERPRETED else numba.config.NUMBA_NUM_THREADS + 1)
SIZES = [(0, 3, 2), (1, 1, 2), (7, 4, 3), (1000, 6, 5)]


def _data(n, d, k, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)).astype(dtype)
    x[rng.random(x.shape) < 0.4] = 0
    return x, rng.dirichlet(np.ones(k), size=n), rng.normal(size=(d, k)), rng.normal(size=k)


@pytest.mark.parametrize(("n", "d", "k"), SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_data_term_and_statistics_are_two_products(n, d, k, dtype, form):
    x, phi, weight, offset = _data(n, d, k, dtype)
    features = wrap_features(form(x))
    np.testing.assert_allclose(features.data_term(weight, offset), x.astype(float) @ weight - offset, atol=1e-12)
    counts, sums = features.statistics(phi)
    np.testing.assert_allclose(counts, phi.sum(axis=0), atol=1e-12)
    np.testing.assert_allclose(sums, phi.T @ x.astype(float), atol=1e-10)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_a_block_of_rows_is_that_block(form):
    x, phi, weight, offset = _data(20, 4, 3)
    whole, block = wrap_features(form(x)), wrap_features(form(x)).rows(5, 12)
    assert block.shape == (7, 4)
    np.testing.assert_array_equal(block.data_term(weight, offset), whole.data_term(weight, offset)[5:12])
    np.testing.assert_allclose(block.statistics(phi[5:12])[1], phi[5:12].T @ x[5:12], atol=1e-12)


def _patch(side, n_patches, number, seed=0):
    """A patch of a square lattice whose spots have four neighbours, joined by random weights between 0.5 and 1.5."""
    coordinates = np.indices((side, side)).reshape(2, -1).T.astype(float)
    upper = sp.triu(mutual_knn(coordinates, 4)).tocsr()
    upper.data = 0.5 + np.random.default_rng(seed).random(upper.nnz)
    return make_patches(coordinates, (upper + upper.T).tocsr(), n_patches).patches[number]


def _sweep_arguments():
    patch, rng = _patch(side=40, n_patches=3, number=1), np.random.default_rng(0)
    n = patch.stop - patch.start
    data_term, halo, phi = rng.normal(size=(n, 3)), rng.random((patch.halo_rows.size, 3)), rng.dirichlet(np.ones(3), n)
    return data_term, patch.indptr, patch.indices, patch.weights, halo, patch.colour_start, phi


def test_serial_and_parallel_versions_have_the_same_bits_for_any_number_of_threads():
    *fixed, phi = _sweep_arguments()
    results = []
    before = numba.get_num_threads()
    runs = [(mixture.sweep.serial, before)]
    runs += [(mixture.sweep.parallel, threads) for threads in THREADS]
    try:
        for run, threads in runs:
            numba.set_num_threads(threads)
            mine = phi.copy()
            run(*fixed, mine)
            results.append(mine)
    finally:
        numba.set_num_threads(before)
    assert not np.array_equal(results[0], phi)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def _posteriors(sweep, fixed, phi, threads):
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(threads)
        mine = phi.copy()
        sweep(*fixed, mine)
        return mine
    finally:
        numba.set_num_threads(before)


@pytest.mark.parametrize("k", [1, 3, 8, 22, 24, 31, 50])
@pytest.mark.parametrize("beta", [1.0, 200.0])
def test_a_sweep_with_relative_likelihoods_is_that_with_their_logarithms(k, beta):
    patch, rng = _patch(side=24 if INTERPRETED else 60, n_patches=2, number=1), np.random.default_rng(k)
    n = patch.stop - patch.start
    relative = np.exp(-np.abs(rng.normal(scale=300.0, size=(n, k))))
    relative[rng.random((n, k)) < 0.1] = 0.0
    relative[: n // 4] = 0.0  # spots that are in no domain of these
    halo, phi = rng.random((patch.halo_rows.size, k)), rng.dirichlet(np.ones(k), size=n)
    graph = (patch.indptr, patch.indices, beta * patch.weights, halo, patch.colour_start)
    logs = relative.copy()
    mixture.log_likelihoods(logs, np.zeros(n))
    expected = _posteriors(mixture.sweep.serial, (logs, *graph), phi, 1)
    found = _posteriors(mixture.sweep_relative.serial, (relative, *graph), phi, 1)
    np.testing.assert_allclose(found, expected, atol=1e-7 if beta > 1.0 else 1e-12)
    for threads in THREADS:
        again = _posteriors(mixture.sweep_relative.parallel, (relative, *graph), phi, threads)
        np.testing.assert_array_equal(again, found)


@pytest.mark.parametrize("k", [1, 3, 8, 22, 24, 31, 50])
def test_cells_have_the_bits_of_a_sweep_by_colour(k):
    patch, rng = _patch(side=60, n_patches=2, number=1), np.random.default_rng(k)
    n = patch.stop - patch.start
    graph = (rng.normal(size=(n, k)), patch.indptr, patch.indices, patch.weights, rng.random((patch.halo_rows.size, k)))
    phi = rng.dirichlet(np.ones(k), size=n)
    expected = _posteriors(mixture.sweep.serial, (*graph, patch.colour_start), phi, 1)
    assert k == 1 or not np.array_equal(expected, phi)
    np.testing.assert_allclose(expected.sum(axis=1), 1.0)
    for threads in THREADS:
        found = _posteriors(mixture.sweep_cells.parallel, (*graph, *patch.cells), phi, threads)
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(_posteriors(mixture.sweep_cells.serial, (*graph, *patch.cells), phi, 1), expected)


@pytest.mark.parametrize("k", [1, 3, 7, 8])
def test_short_rows_that_stay_in_registers_have_the_bits_of_longer_ones(k):
    """The same spots, with domains beyond the eighth that no spot and no neighbour is in."""
    patch, rng = _patch(side=40, n_patches=2, number=1), np.random.default_rng(k)
    n, more = patch.stop - patch.start, 9 - k
    logs, halo, phi = rng.normal(size=(n, k)), rng.random((patch.halo_rows.size, k)), rng.dirichlet(np.ones(k), size=n)
    graph = (patch.indptr, patch.indices, patch.weights)
    long_halo, long_phi = (np.pad(rows, ((0, 0), (0, more))) for rows in (halo, phi))
    long_logs = np.pad(logs, ((0, 0), (0, more)), constant_values=-np.inf)
    for sweep, short, long in (
        (mixture.sweep, logs, long_logs),
        (mixture.sweep_relative, np.exp(logs), np.exp(long_logs)),
    ):
        own = _posteriors(sweep, (short, *graph, halo, patch.colour_start), phi, 1)
        of_longer = _posteriors(sweep, (long, *graph, long_halo, patch.colour_start), long_phi, 1)
        np.testing.assert_array_equal(own, of_longer[:, :k])


def _optimum(i, data_term, indptr, indices, r, halo, phi):
    rows = np.concatenate([phi, halo])
    logits = data_term[i] + r[indptr[i] : indptr[i + 1]] @ rows[indices[indptr[i] : indptr[i + 1]]]
    return np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()


def _settled(data_term, indptr, indices, r, halo, colour_start, before, phi):
    """`settle` in plain NumPy, with its number of updates."""
    n, phi, n_updates = len(phi), phi.copy(), 0
    moved = [0.5 * np.abs(phi[i] - before[i]).sum() > mixture._MOVED for i in range(n)]
    near = [indices[a:b][indices[a:b] < n] for a, b in pairwise(indptr)]
    waiting = {j for i in range(n) if moved[i] for j in near[i]}
    while waiting and n_updates < mixture._AGAIN * n:
        for first, stop in pairwise(colour_start):
            due = sorted(i for i in waiting if first <= i < stop)
            waiting -= set(due)
            for i in due:
                old, phi[i] = phi[i].copy(), _optimum(i, data_term, indptr, indices, r, halo, phi)
                if 0.5 * np.abs(phi[i] - old).sum() > mixture._MOVED:
                    waiting |= set(near[i])
            n_updates += len(due)
    return phi, n_updates


@pytest.mark.parametrize(("k", "clear", "rests"), [(2, 4.0, True), (9, 4.0, True), (9, 1.0, False)])
def test_a_patch_settles_in_the_order_that_numpy_does_or_stops_at_the_limit(k, clear, rests):
    patch, rng = _patch(side=40, n_patches=3, number=1), np.random.default_rng(k)
    n = patch.stop - patch.start
    halo = rng.random((patch.halo_rows.size, k))
    graph = (clear * rng.normal(size=(n, k)), patch.indptr, patch.indices, patch.weights, halo)
    before = rng.dirichlet(np.ones(k), size=n)
    phi = before.copy()
    mixture.sweep(*graph, patch.colour_start, phi)
    expected, n_updates = _settled(*graph, patch.colour_start, before, phi)
    assert n_updates > n
    assert (n_updates < mixture._AGAIN * n) == rests
    mixture.settle(*graph, patch.colour_start, before.copy(), phi)
    np.testing.assert_allclose(phi, expected, rtol=1e-9, atol=1e-12)
    residual = np.empty(n)
    mixture.evaluate_spots(*graph, phi, np.empty_like(phi), np.empty(n), residual)
    # each of four neighbours may have moved a little since
    assert (residual.max() < 10 * mixture._MOVED) == rests


def test_a_patch_at_rest_keeps_its_bits():
    *fixed, phi = _sweep_arguments()
    after = phi.copy()
    mixture.settle(*fixed, phi.copy(), after)
    np.testing.assert_array_equal(after, phi)


@pytest.mark.parametrize("k", [1, 3, 8, 22, 24, 31, 50])
def test_spots_are_evaluated_as_the_formula_says(k):
    patch, rng = _patch(side=30, n_patches=1, number=0), np.random.default_rng(k)
    phi, data_term = rng.dirichlet(np.ones(k), size=900), 3.0 * rng.normal(size=(900, k))
    pull = sp.csr_matrix((patch.weights, patch.indices, patch.indptr), shape=(900, 900)) @ phi
    neg_elbo, residual = np.empty(900), np.empty(900)
    arguments = (data_term, patch.indptr, patch.indices, patch.weights, np.zeros((0, k)), phi, np.empty_like(phi))
    mixture.evaluate_spots(*arguments, neg_elbo, residual)
    entropy = -np.where(phi > 0, phi * np.log(np.maximum(phi, 1e-300)), 0.0).sum(axis=1)
    np.testing.assert_allclose(neg_elbo, -entropy - (phi * (data_term + 0.5 * pull)).sum(axis=1), atol=1e-12)
    optimum = np.exp(data_term + pull)
    optimum /= optimum.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(residual, 0.5 * np.abs(phi - optimum).sum(axis=1), atol=1e-13)
    alone = np.empty(900)
    mixture.evaluate_spots(*arguments, alone, np.empty(0))
    np.testing.assert_array_equal(alone, neg_elbo)


def test_statistics_have_the_same_bits_from_both_versions():
    x, phi, _, _ = _data(5000, 6, 5)
    out = []
    for run in (mixture.statistics_dense.serial, mixture.statistics_dense.parallel):
        counts, sums = np.empty((mixture.N_CHUNKS, 5)), np.empty((mixture.N_CHUNKS, 6, 5))
        run(x, phi, counts, sums)
        out.append((counts, sums))
    np.testing.assert_array_equal(out[0][0], out[1][0])
    np.testing.assert_array_equal(out[0][1], out[1][1])


@pytest.mark.parametrize("n", [0, 3, 5000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_movement_is_the_total_variation_with_the_same_bits_from_both_versions(n, dtype):
    rng = np.random.default_rng(n)
    before, phi = rng.dirichlet(np.ones(5), size=n).astype(dtype), rng.dirichlet(np.ones(5), size=n)
    serial, parallel = np.full((2, mixture.N_CHUNKS), np.nan)
    mixture.movement.serial(before, phi, serial)
    mixture.movement.parallel(before, phi, parallel)
    assert serial.sum() == pytest.approx(0.5 * np.abs(phi - before).sum())
    np.testing.assert_array_equal(serial, parallel)


def test_the_version_is_chosen_by_the_amount_of_work(monkeypatch):
    chosen = []
    for name in ("serial", "parallel"):
        monkeypatch.setattr(mixture.data_term_dense, name, lambda *_, name=name: chosen.append(name))
    for n in (10, 100_000):
        mixture.data_term_dense(np.zeros((n, 4)), np.zeros((4, 2)), np.zeros(2), np.zeros((n, 2)))
    assert chosen == ["serial", "parallel"]


def test_the_work_of_very_many_stored_values_is_counted_in_full():
    indptr, domains = np.array([0, 2**31 - 1], dtype=np.int32), np.zeros((1, 20))
    assert mixture.data_term_csr._work(None, None, indptr, None, domains[0], None) == 20 * (2**31 - 1)
    assert mixture.statistics_csr._work(None, None, indptr, domains, None, None) == 20 * (2**31 - 1)


def test_extreme_logits_stay_probabilities():
    data_term = np.array([[1e5, -1e5, 0.0], [-1e308, -1e308, -1e308], [700.0, 710.0, -700.0]])
    phi = np.full((3, 3), 1 / 3)
    none = np.zeros(0)
    mixture.sweep(
        data_term, np.zeros(4, np.int64), none.astype(np.int32), none, np.zeros((0, 3)), np.array([0, 3]), phi
    )
    np.testing.assert_allclose(phi.sum(axis=1), 1.0)
    np.testing.assert_allclose(phi[0], [1, 0, 0], atol=1e-300)
    np.testing.assert_allclose(phi[1], 1 / 3)
