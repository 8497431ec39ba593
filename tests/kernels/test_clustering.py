"""Compiled loops of clustering against NumPy, serial against parallel, over types and odd sizes."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

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
        "fit_components": (x, x.T @ x, 1e-3, 2, 1e-6, np.full(11, 1 / 11), centres.copy(), np.eye(7)),
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


@pytest.mark.parametrize(("d", "k"), [(1, 1), (4, 3), (6, 19)])
def test_linear_terms_are_those_of_gaussians_with_one_covariance(d, k):
    rng = np.random.default_rng(0)
    x, means, share = rng.normal(size=(9, d)), rng.normal(size=(k, d)), rng.dirichlet(np.ones(k))
    half = rng.normal(size=(d, d + 2))
    covariance = half @ half.T
    weight, offset = np.empty((d, k)), np.empty(k)
    size = clustering.linear_terms(share, means, covariance, np.empty((d, d)), weight, offset)
    common = np.einsum("if,fg,ig->i", x, np.linalg.inv(covariance), x) + d * np.log(2 * np.pi)
    expected = np.transpose([multivariate_normal(mean, covariance).logpdf(x) for mean in means]) + np.log(share)
    found = x @ weight - offset - 0.5 * (common.reshape(-1, 1) + size)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-9)


def test_a_maximised_mixture_has_the_moments_of_its_spots():
    x, labels = np.random.default_rng(0).normal(size=(200, 4)), np.arange(200) % 3
    k, d = 3, x.shape[1]
    counts, sums = np.bincount(labels).astype(float), np.ascontiguousarray(x.T @ np.eye(k)[labels])
    share, means, covariance = np.empty(k), np.empty((k, d)), np.empty((d, d))
    clustering.maximise(counts, sums, x.T @ x, 0.25, share, means, covariance)
    within = x - np.array([x[labels == own].mean(axis=0) for own in range(k)])[labels]
    np.testing.assert_allclose(share, counts / len(x))
    np.testing.assert_allclose(means.T * counts, sums)
    np.testing.assert_allclose(covariance, within.T @ within / len(x) + 0.25 * np.eye(d))


def test_components_gain_likelihood_in_every_step_and_end_where_they_gain_little():
    x = np.random.default_rng(0).normal(size=(300, 3)) + 4.0 * np.eye(3)[np.arange(300) % 3]
    x -= x.mean(axis=0)

    def begin():
        return np.full(3, 1 / 3), 0.1 * x[:3], np.eye(3)

    def likelihood(share, means, covariance):
        logs = np.transpose([multivariate_normal(mean, covariance).logpdf(x) for mean in means]) + np.log(share)
        return logsumexp(logs, axis=1).mean()

    mixture = begin()
    course = [likelihood(*mixture)]
    for _ in range(20):
        clustering.fit_components(x, x.T @ x, 1e-9, 1, 0.0, *mixture)
        course.append(likelihood(*mixture))
    gains = np.diff(course)
    assert (gains > -1e-12).all()
    assert course[-1] > course[1] + 0.1
    rests = np.argmax(gains < 1e-3)  # that it gained little is known one step later
    mixture = begin()
    clustering.fit_components(x, x.T @ x, 1e-9, 20, 1e-3, *mixture)
    assert likelihood(*mixture) == pytest.approx(course[rests + 2], abs=1e-12)
    assert gains[rests + 2] > 1e-12


def test_centres_rest_once_they_move_as_little_as_was_asked():
    x, ends = np.random.default_rng(0).normal(size=(300, 3)), []
    for most, settled in ((1, 0.0), (50, np.inf), (50, 0.0)):
        centres = x[:5].copy()
        clustering.move_centres(x, most, settled, centres, np.empty(300, dtype=np.int64))
        ends.append(centres)
    np.testing.assert_array_equal(ends[0], ends[1])
    assert not np.array_equal(ends[1], ends[2])
