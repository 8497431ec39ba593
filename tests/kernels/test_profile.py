"""The compiled loop of the profile objective against plain numpy."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import log_softmax, logsumexp

from spatialpdvi.kernels.profile import follow_means


@pytest.mark.parametrize("k", [1, 3, 8, 11])
@pytest.mark.parametrize("version", ["serial", "parallel"])
def test_posteriors_follow_the_means(k, version):
    rng, n, p = np.random.default_rng(k), 40, 2
    places = rng.random((n, 2))
    near = np.linalg.norm(places[:, None] - places, axis=2) < 0.2
    near[:, 0] = near[0] = False  # a spot without neighbours
    np.fill_diagonal(near, False)
    graph = np.where(near, rng.uniform(0.05, 0.25, size=(n, n)), 0.0)
    graph = sp.csr_matrix(graph + graph.T)
    own = rng.normal(size=(n, k))
    linear, square = rng.normal(size=(2, p, k))
    y, t = rng.gamma(1.0, size=(2, n))
    start = np.exp(log_softmax(own, axis=1))
    found, sums, exposures = np.empty(p), np.empty((p, k)), np.empty((p, k))
    edges = (graph.indptr, graph.indices, graph.data)
    loop = getattr(follow_means, version)
    loop(own, linear, square, y, t, *edges, start, 1e-13, found, sums, exposures)
    for row in range(p):
        data = own + y[:, None] * linear[row] - t[:, None] * square[row]
        phi = start.copy()
        for _ in range(400):
            for i in range(n):
                phi[i] = np.exp(log_softmax(data[i] + graph[[i]].toarray()[0] @ phi))
            logits = data + graph @ phi
            if np.abs(np.exp(log_softmax(logits, axis=1)) - phi).max() < 1e-13:
                break
        # at a fixed point the entropy is that of a softmax
        expected = logsumexp(logits, axis=1).sum() - 0.5 * (phi * (graph @ phi)).sum()
        assert found[row] == pytest.approx(expected, rel=1e-10)
        np.testing.assert_allclose(sums[row], y @ phi, rtol=1e-9)
        np.testing.assert_allclose(exposures[row], t @ phi, rtol=1e-9)


def test_a_certain_spot_has_no_entropy_and_underflows_to_none():
    own, none = np.array([[0.0, -2000.0]]), np.zeros((1, 2))
    found, sums, exposures = np.empty(1), np.empty((1, 2)), np.empty((1, 2))
    no_edges = (np.zeros(2, np.int32), np.empty(0, np.int32), np.empty(0))
    one = np.ones(1)
    follow_means(own, none, none, 3.0 * one, one, *no_edges, np.array([[0.5, 0.5]]), 1e-9, found, sums, exposures)
    assert found[0] == 0.0
    np.testing.assert_array_equal(sums, [[3.0, 0.0]])
    np.testing.assert_array_equal(exposures, [[1.0, 0.0]])
