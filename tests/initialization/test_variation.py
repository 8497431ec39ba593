"""Compositions that vary within domains, on sections whose compositions are known."""

import numpy as np
import pytest
from scipy.special import softmax

from spatialpdvi.graph.neighbors import mutual_knn
from spatialpdvi.graph.weights import scale_weights
from spatialpdvi.initialization import variation
from spatialpdvi.initialization.landscape import Landscape, Places
from spatialpdvi.initialization.search import lowest
from spatialpdvi.initialization.variation import change_by_variation, smooth_functions
from spatialpdvi.metrics.clustering import adjusted_rand_index

_A = np.full(5, 0.2)  # prior of one spot


def _layers(seed=0, drift=1.3):
    """A thick layer whose composition drifts through it, and two thin ones: places, layers, likelihoods of states."""
    rng = np.random.default_rng(seed)
    xy = np.stack(np.meshgrid(np.arange(48.0), np.arange(30.0)), axis=-1).reshape(-1, 2)
    layer = np.searchsorted([36.0, 42.0], xy[:, 0], side="right")
    theta = np.log(np.array([[0.4, 0.4, 0.1, 0.05, 0.05], [0.1, 0.1, 0.4, 0.3, 0.1], [0.1, 0.1, 0.15, 0.25, 0.4]]))
    logits = theta[layer]
    depth = np.where(layer == 0, xy[:, 0] / 18.0 - 1.0, 0.0)
    logits = logits + drift * depth[:, None] * np.array([0.5, -0.5, 0.0, 0.0, 0.0])
    states = (softmax(logits, axis=1).cumsum(axis=1) > rng.random(len(xy))[:, None]).argmax(axis=1)
    return xy, layer, np.where(states[:, None] == np.arange(5), 1.0, np.exp(-8.0))


def _objective(relative, functions, labels, theta, slopes):
    """What is minimised, in plain numpy (C14)."""
    p = softmax(theta[labels] + np.einsum("ib,ibc->ic", functions, slopes[labels]), axis=1)
    prior = (_A * np.log(softmax(theta, axis=1))).sum()
    return -np.log((p * relative).sum(axis=1)).sum() - prior + 0.5 * (slopes**2).sum() / variation._SPREAD**2


def _domains(relative, labels):
    return variation._Domains(relative, labels, 3, _A)


def test_functions_have_unit_variance_and_are_smooth():
    xy = _layers()[0]
    functions = smooth_functions(xy)
    assert functions.shape == (len(xy), 24)
    covariance = functions @ functions.T
    assert np.diag(covariance).mean() == pytest.approx(1.0, abs=0.1)
    distance = np.linalg.norm(xy - xy[700], axis=1)
    assert covariance[700, distance == 1.0].min() > 0.9
    assert np.abs(covariance[700, distance > 30.0]).max() < 0.1
    in_another_unit = smooth_functions(xy / 1024.0)
    np.testing.assert_allclose(in_another_unit @ in_another_unit.T, covariance, atol=1e-9)


def test_there_are_no_functions_where_all_spots_are_in_one_place_or_too_few():
    places = np.random.default_rng(0).random((960, 2))
    assert smooth_functions(places).shape == (960, 24)
    assert smooth_functions(places[1:]).shape == (959, 0)
    assert smooth_functions(np.zeros((960, 2))).shape == (960, 0)


def test_no_step_raises_the_objective_and_the_last_is_stationary():
    xy, labels, relative = _layers()
    functions, start = smooth_functions(xy), np.zeros((3, 5))
    fits = [_domains(relative, labels).fit(functions, start, steps=steps) for steps in (*range(25), 800)]
    values = np.array([fit.value for fit in fits])
    assert (np.diff(values) <= 1e-9 * np.abs(values[:-1])).all()
    last = fits[-1]
    assert last.value == pytest.approx(_objective(relative, functions, labels, last.theta, last.slopes), rel=1e-12)
    rng, h = np.random.default_rng(1), 1e-4
    for _ in range(10):
        a, b = rng.normal(size=last.theta.shape), rng.normal(size=last.slopes.shape)
        up, down = (_objective(relative, functions, labels, last.theta + s * a, last.slopes + s * b) for s in (h, -h))
        assert abs(up - down) / (2 * h) < 1e-3
        assert up + down > 2 * last.value


def test_without_functions_compositions_are_those_of_a_fit():
    xy, labels, relative = _layers()
    constant = _domains(relative, labels).fit(smooth_functions(xy)[:, :0], np.zeros((3, 5)), steps=60)
    pi = np.full((3, 5), 0.2)
    for _ in range(60):  # (C5)
        psi = pi[labels] * relative
        members = np.eye(3)[labels].T @ (psi / psi.sum(axis=1, keepdims=True)) + _A
        pi = members / members.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(softmax(constant.theta, axis=1), pi, rtol=1e-9)
    composition, value = _domains(relative, labels).constant(steps=60)
    np.testing.assert_allclose(composition, pi, rtol=1e-9)
    assert value == pytest.approx(constant.value, rel=1e-12)
    assert change_by_variation(relative, np.zeros((len(xy), 0)), labels, 3, _A) == pytest.approx(0.0, abs=1e-9)


def test_what_varies_within_a_domain_gains_more():
    steady, drifting = (
        change_by_variation(relative, smooth_functions(xy), labels, 3, _A)
        for xy, labels, relative in (_layers(drift=0.0), _layers(drift=4.0))
    )
    assert drifting < 3.0 * steady < 0.0


@pytest.mark.parametrize("seed", range(3))
def test_of_fits_that_are_about_as_good_the_one_whose_domains_vary_within_is_chosen(seed):
    """To F alone, the thick layer in two halves and the thin ones as one domain are better than the truth."""
    xy, layer, relative = _layers(seed)
    halved = np.where(layer == 0, (xy[:, 0] >= 18.0).astype(int), 2)
    landscape = Landscape(relative, Places(xy), scale_weights(mutual_knn(xy, 10), beta=1.0), 3, _A)
    true, other = (landscape.fit(labels[landscape.order]) for labels in (layer, halved))
    assert other.neg_elbo < true.neg_elbo < other.neg_elbo + 0.015 * landscape.n
    change = change_by_variation(relative, smooth_functions(xy), landscape.as_given(true.labels), 3, _A)
    assert landscape.varied(true) == pytest.approx(true.neg_elbo + change, rel=1e-9)
    true_lacks, other_lacks = (landscape.rank(fit)[0] for fit in (true, other))
    assert (true_lacks, landscape.varied(true)) < (other_lacks, landscape.varied(other))
    found = lowest(landscape, [layer, halved], rounds=0, seed=0)
    assert found.ended_at == pytest.approx(other.neg_elbo, abs=0.5)
    assert adjusted_rand_index(found.labels, layer) > 0.9 > adjusted_rand_index(landscape.as_given(other.labels), layer)
