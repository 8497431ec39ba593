"""The compiled loops of the search against plain numpy."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import softmax

from spatialpdvi.kernels.search import compose, domains_inserted, fit_domains, fit_two_within, varied_statistics


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


@pytest.mark.parametrize("n_functions", [0, 1, 24])
@pytest.mark.parametrize(("n_states", "dtype"), [(3, np.float64), (24, np.float32), (26, np.float64)])
def test_sums_of_varied_compositions(n_functions, n_states, dtype):
    rng, k, n = np.random.default_rng(0), 4, 150
    relative = np.exp(-rng.gamma(1.0, 3.0, size=(n, n_states))).astype(dtype)
    relative[0] = 0.0  # underflow, as of a spot far from all states that a domain has
    functions, labels = rng.normal(size=(n, n_functions)), rng.integers(3, size=n)  # the last domain has no spots
    theta, slopes = rng.normal(size=(k, n_states)), rng.normal(size=(k, n_functions, n_states))
    p = softmax(theta[labels] + np.einsum("ib,ibc->ic", functions, slopes[labels]), axis=1)
    whole = np.maximum((p * relative).sum(axis=1), 1e-300)
    q = p * relative / whole[:, None]
    member = np.eye(k)[labels]
    found, expected, squares = (np.full((k, n_states), np.nan) for _ in range(3))
    gradient = np.full((k, n_functions, n_states), np.nan)
    value = varied_statistics(relative, functions, labels, theta, slopes, found, expected, squares, gradient)
    assert value == pytest.approx(np.log(whole).sum(), rel=1e-10)
    np.testing.assert_allclose(found, member.T @ q, rtol=1e-10)
    np.testing.assert_allclose(expected, member.T @ p, rtol=1e-10)
    np.testing.assert_allclose(squares, member.T @ p**2, rtol=1e-10)
    np.testing.assert_allclose(gradient, np.einsum("ik,ib,ic->kbc", member, functions, q - p), rtol=1e-8, atol=1e-11)


def _domains(dtype=np.float64):
    """Arguments of `fit_domains` but for the rounds: four domains, each spot a colour of its own."""
    likelihood, graph, _, _ = _parts(n=90, dtype=dtype)
    n, n_states = likelihood.shape
    rng = np.random.default_rng(3)
    phi, composition = rng.dirichlet(np.ones(4), size=n), rng.dirichlet(np.ones(n_states), size=4)
    edges = (graph.indptr, graph.indices, graph.data, np.arange(n + 1))
    mixed = likelihood.astype(float) @ composition.T
    return (likelihood, *edges, np.linspace(0.1, 0.3, n_states)), (np.empty((n, 4)), mixed, composition, phi)


def _value(given, fitted):
    """(C3), in plain numpy."""
    likelihood, indptr, indices, weights, _, prior = given
    _, _, composition, phi = fitted
    pull = sp.csr_matrix((weights, indices, indptr)) @ phi
    logs = np.log(likelihood @ composition.T)
    return (phi * (np.log(phi) - logs - 0.5 * pull)).sum() - (prior * np.log(composition)).sum()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_round_of_a_fit_raises_f_and_the_last_is_stationary(dtype):
    given, fitted = _domains(dtype)
    values, at_rest = [_value(given, fitted)], False
    while not at_rest and len(values) < 400:
        at_rest = fit_domains(*given, 1, 1e-9, *fitted)
        values.append(_value(given, fitted))
    assert at_rest
    assert (np.diff(values) <= 1e-9 * np.abs(values[:-1])).all()
    likelihood, indptr, indices, weights, _, prior = given
    _, mixed, composition, phi = fitted
    np.testing.assert_allclose(mixed, likelihood @ composition.T, rtol=1e-12)
    pull = sp.csr_matrix((weights, indices, indptr)) @ phi
    np.testing.assert_allclose(phi, softmax(np.log(mixed) + pull, axis=1), atol=1e-6)
    members = (phi / mixed).T @ likelihood * composition + prior
    compose(likelihood, prior, phi, mixed, composition)
    np.testing.assert_allclose(composition, members / members.sum(axis=1, keepdims=True), rtol=1e-12)


def test_rounds_at_once_are_those_one_by_one_and_the_bits_do_not_depend_on_who_runs_the_steps():
    given, fitted = _domains()
    one_by_one, by_python = ([part.copy() for part in fitted] for _ in range(2))
    assert not fit_domains.serial(*given, 7, 0.0, *fitted)
    for _ in range(7):
        fit_domains(*given, 1, 0.0, *one_by_one)
    fit_domains.steps(*given, 7, 0.0, *by_python)
    for whole, one, other in zip(fitted, one_by_one, by_python, strict=True):
        np.testing.assert_array_equal(whole, one)
        np.testing.assert_array_equal(whole, other)
    assert fit_domains(*given, 7, 1.0, *fitted)


def test_a_domain_of_another_fit_costs_what_hard_labels_say():
    likelihood, graph, _, _ = _parts()
    rng = np.random.default_rng(5)
    labels, others = rng.integers(3, size=len(likelihood)), rng.integers(3, size=len(likelihood))
    own, composition = (rng.dirichlet(np.ones(likelihood.shape[1]), size=3) for _ in range(2))
    current = np.log((likelihood * own[labels]).sum(axis=1))
    changes, overlap = np.empty(3), np.empty((3, 3), dtype=np.int64)
    edges = (graph.indptr, graph.indices, graph.data)
    domains_inserted(likelihood, *edges, labels, current, others, composition, changes, overlap)

    def value(numbers, evidence):
        same = numbers[:, None] == numbers
        return -evidence.sum() - 0.5 * graph.multiply(same).sum()

    for domain in range(3):
        region = others == domain
        new = np.log(likelihood[region] @ composition[domain])
        evidence = current.copy()
        evidence[region] = new
        expected = value(np.where(region, 3, labels), evidence) - value(labels, current)
        assert changes[domain] == pytest.approx(expected, rel=1e-9)
        np.testing.assert_array_equal(overlap[domain], np.bincount(labels[region], minlength=3))
