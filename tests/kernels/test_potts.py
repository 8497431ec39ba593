"""Draws from the Potts prior against its conditional distributions, written out."""

import numpy as np
import scipy.sparse as sp

from spatialpdvi.kernels.potts import draw_domains

K = 5


def _graph(edges, n):
    rows, columns, weight = zip(*edges, strict=True)
    half = sp.csr_matrix((weight, (rows, columns)), shape=(n, n))
    return (half + half.T).tocsr()


def test_a_spot_has_each_domain_as_often_as_its_neighbours_say():
    """Numbers spread evenly over [0, 1) instead of random ones, so that shares are exact up to one draw."""
    graph = _graph([(0, 1, 0.5), (0, 2, 1.25), (0, 3, 0.75)], 5)
    labels = np.array([4, 2, 0, 2, 1])
    weights = np.exp([1.25, 0.0, 0.5 + 0.75, 0.0, 0.0])
    found = np.zeros(K)
    for number in (np.arange(1000) + 0.5) / 1000:
        drawn = labels.copy()
        draw_domains(graph.indptr, graph.indices, graph.data, np.full(5, number), K, drawn)
        found[drawn[0]] += 1
        assert drawn[4] == int(number * K)  # it has no neighbours
    np.testing.assert_allclose(found, 1000 * weights / weights.sum(), atol=1)


def test_each_spot_sees_what_was_drawn_before_it():
    """Along a path whose edges become weaker all follow the first spot; where they become stronger, the next one."""
    for factor, expected in ((0.5, [1] * 10), (2.0, [1, 2, 3, 4, 0, 1, 2, 3, 4, 4])):
        graph = _graph([(i, i + 1, 1e5 * factor**i) for i in range(9)], 10)
        labels = np.arange(10) % K
        draw_domains(graph.indptr, graph.indices, graph.data, np.full(10, 0.7), K, labels)
        np.testing.assert_array_equal(labels, expected)


def test_long_runs_have_the_shares_of_all_labellings():
    graph = _graph([(0, 1, 0.8), (1, 2, 0.4), (0, 2, 1.1)], 3)
    dense, expected = graph.toarray(), np.zeros((3, 3, 3))
    for labels in np.ndindex(3, 3, 3):
        same = np.equal.outer(labels, labels)
        expected[labels] = np.exp(0.5 * (dense * same).sum())
    expected /= expected.sum()
    rng, labels, found = np.random.default_rng(0), np.zeros(3, dtype=np.int64), np.zeros((3, 3, 3))
    for _ in range(20_000):
        draw_domains(graph.indptr, graph.indices, graph.data, rng.random(3), 3, labels)
        found[tuple(labels)] += 1
    np.testing.assert_allclose(found / found.sum(), expected, atol=0.01)
