"""Compiled loops of clustering against NumPy, serial against parallel, over types and odd sizes."""

import numpy as np
import pytest

from spatialpdvi.kernels import clustering
from spatialpdvi.kernels.mixture import N_CHUNKS

SIZES = [(0, 3, 2), (1, 1, 2), (7, 4, 3), (1001, 6, 19)]


def _data(n, d, k, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)).astype(dtype), rng.normal(size=(d, k)), rng.normal(size=k)


@pytest.mark.parametrize(("n", "d", "k"), SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_likeliest_cluster_is_that_of_the_largest_product(n, d, k, dtype):
    x, weight, offset = _data(n, d, k, dtype)
    labels = np.empty(n, dtype=np.int64)
    clustering.most_likely(x, weight, offset, labels)
    np.testing.assert_array_equal(labels, (x.astype(float) @ weight - offset).argmax(axis=1))


def test_of_equally_likely_clusters_the_first_is_taken():
    labels = np.empty(5, dtype=np.int64)
    clustering.most_likely(np.ones((5, 2)), np.tile([[0.0, 1.0, 1.0]], (2, 1)), np.zeros(3), labels)
    np.testing.assert_array_equal(labels, np.ones(5))


@pytest.mark.parametrize(("n", "d", "k"), SIZES)
def test_distances_with_a_candidate_are_those_to_the_nearest(n, d, k):
    x, centres, _ = _data(n, d, k, np.float64)
    closest, out = np.random.default_rng(1).random(n) * 2 * d, np.empty((n, k))
    clustering.distances_with(x, centres, closest, out)
    squares = ((x[:, :, None] - centres) ** 2).sum(axis=1)
    np.testing.assert_allclose(out, np.minimum(squares, closest[:, None]), atol=1e-12)


@pytest.mark.parametrize(("n", "d", "k"), SIZES)
def test_sums_by_label_are_those_of_each_label(n, d, k):
    x, _, _ = _data(n, d, k, np.float64)
    labels = np.random.default_rng(1).integers(k, size=n)
    counts, sums = np.empty((N_CHUNKS, k)), np.empty((N_CHUNKS, k, d))
    clustering.sums_by_label(x, labels, counts, sums)
    np.testing.assert_array_equal(counts.sum(axis=0), np.bincount(labels, minlength=k))
    np.testing.assert_allclose(sums.sum(axis=0), np.eye(k)[labels].T @ x, atol=1e-12)


@pytest.mark.parametrize(("n", "k"), [(0, 2), (1, 1), (9, 3), (100, 19)])
def test_posteriors_add_up_to_one_and_their_value_is_the_logarithm_of_the_sum(n, k):
    logs = 50.0 * np.random.default_rng(0).normal(size=(n, k)) - 1000.0
    phi, value = logs.copy(), np.empty(n)
    clustering.posteriors(phi, value)
    top = logs.max(axis=1, initial=-np.inf)
    expected = top + np.log(np.exp(logs - top[:, None]).sum(axis=1))
    np.testing.assert_allclose(value, expected, rtol=1e-14)
    np.testing.assert_allclose(phi, np.exp(logs - expected[:, None]), rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize(("n", "restarts", "k"), [(0, 2, 2), (1, 1, 1), (9, 4, 3), (203, 5, 19)])
def test_classes_are_scored_and_learnt_from_the_labels_of_all_restarts(n, restarts, k):
    rng = np.random.default_rng(0)
    labels = rng.integers(k, size=(n, restarts)).astype(np.int32)
    table, share, gamma, weight = (rng.random(shape) for shape in ((restarts, k, k), k, (n, k), n))
    scores, sums = np.empty((n, k)), np.empty((restarts, k, k))
    clustering.class_scores(labels, table, share, scores)
    np.testing.assert_allclose(scores, share + table[np.arange(restarts), labels].sum(axis=1), atol=1e-12)
    clustering.label_weights(labels, gamma, weight, sums)
    for r in range(restarts):
        expected = np.eye(k)[labels[:, r]].T @ (weight[:, None] * gamma)
        np.testing.assert_allclose(sums[r], expected, atol=1e-12)


def test_serial_and_parallel_loops_have_the_same_bits():
    x, weight, offset = _data(5003, 7, 11, np.float64)
    labels, restarts = np.random.default_rng(1).integers(11, size=5003), np.zeros((5003, 6), dtype=np.int32)
    restarts[:, 1] = labels
    calls = {
        "most_likely": (x, weight, offset, np.empty(5003, dtype=np.int64)),
        "distances_with": (x, weight, np.full(5003, 9.0), np.empty((5003, 11))),
        "sums_by_label": (x, labels, np.empty((N_CHUNKS, 11)), np.empty((N_CHUNKS, 11, 7))),
        "posteriors": (x @ weight, np.empty(5003)),
        "class_scores": (restarts, np.tile(offset, (6, 11, 1)), offset, np.empty((5003, 11))),
        "label_weights": (restarts, x @ weight, x[:, 0].copy(), np.empty((6, 11, 11))),
    }
    for name, arguments in calls.items():
        kernel = getattr(clustering, name)
        serial = [argument.copy() for argument in arguments]
        kernel.serial(*serial)
        kernel.parallel(*arguments)
        for a, b in zip(serial, arguments, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)


def test_steps_that_are_compiled_as_a_whole_have_the_bits_of_those_that_python_runs():
    x = np.random.default_rng(0).normal(size=(1003, 7))
    draws = np.random.default_rng(1).random((10, 4))
    centres = x[:11].copy()
    calls = {
        "seed_centres": (x, 17, draws, np.empty((11, 7))),
        "to_nearest": (x, centres, np.empty(1003, dtype=np.int64)),
        "move_centres": (x, 5, 1e-6, centres, np.empty(1003, dtype=np.int64)),
    }
    for name, arguments in calls.items():
        kernel = getattr(clustering, name)
        whole = [np.copy(argument) if isinstance(argument, np.ndarray) else argument for argument in arguments]
        kernel.serial(*whole)
        kernel.steps(*arguments)
        for a, b in zip(whole, arguments, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)
        assert not np.array_equal(arguments[-1], np.zeros_like(arguments[-1])), name


def test_seeds_bring_spots_nearer_than_any_other_candidate():
    x = np.random.default_rng(0).normal(size=(300, 3))
    draws, centres = np.random.default_rng(1).random((5, 3)), np.empty((6, 3))
    clustering.seed_centres(x, 4, draws, centres)
    closest = ((x - x[4]) ** 2).sum(axis=1)
    np.testing.assert_array_equal(centres[0], x[4])
    for drawn, centre in zip(draws, centres[1:], strict=True):
        reach = np.cumsum(closest)
        candidates = x[np.searchsorted(reach, drawn * reach[-1])]
        nearer = np.minimum(closest[:, None], ((x[:, None] - candidates) ** 2).sum(axis=2))
        best = nearer.sum(axis=0).argmin()
        np.testing.assert_array_equal(centre, candidates[best])
        closest = nearer[:, best]
