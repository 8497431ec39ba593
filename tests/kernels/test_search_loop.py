"""Two domains fitted within one: the compiled loop against plain numpy."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import softmax

from spatialpdvi.kernels.search import fit_two_within


def _parts(seed=0, n=240, n_states=7, dtype=np.float64):
    """Likelihoods of states, a graph, the spots of one domain and a first division of them."""
    rng = np.random.default_rng(seed)
    likelihood = np.exp(-rng.gamma(1.0, 3.0, size=(n, n_states)))
    likelihood /= likelihood.max(axis=1, keepdims=True)
    places = rng.random((n, 2))
    near = np.linalg.norm(places[:, None] - places, axis=2) < 0.12
    np.fill_diagonal(near, False)
    graph = sp.csr_matrix(np.where(near, rng.uniform(0.3, 1.0, size=(n, n)), 0.0))
    graph = sp.csr_matrix(graph + graph.T)
    spots = np.flatnonzero(places[:, 0] < 0.7)
    return likelihood.astype(dtype), graph, spots, places[spots, 0] < 0.4


def _plain(likelihood, edges, prior, rounds, composition, phi):
    """The loop in a few lines: data terms, all spots half way, compositions."""
    for turn in range(rounds):
        mixed = likelihood @ composition.T
        new = softmax(np.log(mixed) + edges @ phi, axis=1)
        moved = np.abs(new - phi).mean()
        if turn:
            phi = 0.5 * (phi + new)
        weights = (phi / mixed).T @ likelihood * composition + prior
        composition = weights / weights.sum(axis=1, keepdims=True)
        if turn and moved < 1e-3:
            break
    logs = np.log(likelihood @ composition.T)
    entropy = np.where(phi > 0, phi * np.log(np.maximum(phi, 1e-300)), 0.0).sum()
    value = entropy - (phi * logs).sum() - 0.5 * (phi * (edges @ phi)).sum() - (prior * np.log(composition)).sum()
    return value, phi, composition


@pytest.mark.parametrize("rounds", [1, 2, 14, 400])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_loop_is_the_fit_of_two_domains_within_one(rounds, dtype):
    likelihood, graph, spots, half = _parts(dtype=dtype)
    prior = np.linspace(0.1, 0.3, likelihood.shape[1])
    composition = np.array([np.roll(softmax(np.arange(7.0) / 2), shift) for shift in (0, 3)])
    place = np.full(len(likelihood), -1)
    place[spots] = np.arange(spots.size)
    inner = graph[spots][:, spots]
    phi = np.stack([~half, half], axis=1).astype(float)
    expected = _plain(likelihood[spots].astype(float), inner, prior, rounds, composition, phi)
    own, second = composition.copy(), half.astype(float)
    edges = (graph.indptr, graph.indices, graph.data)
    value, inside = fit_two_within(likelihood, spots, place, *edges, prior, rounds, 1e-3, own, second)
    assert value == pytest.approx(expected[0], rel=1e-10)
    assert inside == pytest.approx(0.5 * inner.sum())
    np.testing.assert_allclose(second, expected[1][:, 1], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(own, expected[2], rtol=1e-8)
