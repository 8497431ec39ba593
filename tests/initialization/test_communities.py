"""Communities of spots with like features, and the states that they are."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist

from spatialpdvi.initialization import restarts
from spatialpdvi.initialization import states as module
from spatialpdvi.initialization.communities import _united, communities, shared_neighbors
from spatialpdvi.initialization.states import learn_states, states_of_communities
from spatialpdvi.metrics.clustering import adjusted_rand_index
from spatialpdvi.runtime.threads import single_threaded


def _groups(n=1200, k=6, d=5, apart=6.0, seed=0):
    """Spots of ``k`` groups, of which each has more spots than the one before."""
    rng = np.random.default_rng(seed)
    truth = np.sort(rng.choice(k, n, p=np.arange(1, k + 1) / (k * (k + 1) / 2)))
    return truth, apart * rng.normal(size=(k, d))[truth] + rng.normal(size=(n, d))


def test_an_edge_weighs_as_much_as_its_ends_share_neighbours():
    x = _groups(n=80)[1]
    near = cdist(x, x).argsort(axis=1)[:, :16]  # a spot and its 15 nearest
    joined = np.zeros((80, 80))
    np.put_along_axis(joined, near, 1.0, axis=1)
    joined = np.maximum(joined, joined.T)
    expected = joined * (joined @ joined)
    np.fill_diagonal(expected, 0.0)
    np.testing.assert_array_equal(shared_neighbors(x).toarray(), expected)


def test_the_size_of_blocks_changes_nothing(monkeypatch):
    x = _groups(n=80)[1]
    whole = shared_neighbors(x)
    monkeypatch.setattr("spatialpdvi.initialization.communities._BLOCK", 7)
    parts = shared_neighbors(x)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))


@pytest.mark.parametrize("resolution", [0.01, 1.0, 30.0])
def test_groups_that_are_apart_are_found_from_any_resolution(resolution):
    truth, x = _groups()
    labels, found_at = communities(shared_neighbors(x), x, 6, seed=0, resolution=resolution)
    assert adjusted_rand_index(truth, labels) > 0.99
    again, same = communities(shared_neighbors(x), x, 6, seed=0, resolution=found_at)
    assert same == found_at
    np.testing.assert_array_equal(again, labels)


@pytest.mark.parametrize("k", [2, 4, 9, 20, 37])
def test_there_are_as_many_communities_as_asked_for_and_none_is_tiny(k):
    x = _groups()[1]
    labels, _ = communities(shared_neighbors(x), x, k, seed=0)
    sizes = np.bincount(labels)
    assert sizes.size == k
    assert sizes.min() >= 8


def test_where_no_resolution_gives_about_as_many_those_of_the_fewest_above_are_united(monkeypatch):
    x, tried, counts = np.arange(240.0)[:, None], [], iter([20, 9, 3, 12, *[4] * 8])

    def found(graph, resolution, seed):
        tried.append(resolution)
        return np.arange(240) * next(counts) // 240

    monkeypatch.setattr("spatialpdvi.initialization.communities._louvain", found)
    labels, resolution = communities(shared_neighbors(x), x, 5, seed=0)
    assert len(tried) == 12
    assert resolution == tried[1]
    assert np.unique(labels).size == 5
    of_nine = np.arange(240) * 9 // 240
    assert all(np.unique(labels[of_nine == own]).size == 1 for own in range(9))


def test_the_search_for_a_resolution_begins_where_that_of_the_set_before_ended(monkeypatch):
    truth, x = _groups(n=400)
    begun = []

    def found(*_, resolution, **__):
        begun.append(resolution)
        return truth, 2.0 * resolution

    monkeypatch.setattr(module, "communities", found)
    states_of_communities(x, 6, seeds=[0, 1, 2])
    assert begun == [1.0, 2.0, 4.0]


def test_spots_of_tiny_communities_join_the_nearest_mean():
    """Five spots beside the largest group are joined to each other alone, so that they are a community of their own."""
    truth, x = _groups(n=600)
    x = np.vstack([x, x[truth == 5].mean(axis=0) + 1e-3 * np.random.default_rng(1).normal(size=(5, 5))])
    rest = shared_neighbors(x[:-5])
    graph = sp.block_diag([rest, np.ones((5, 5)) - np.eye(5)]).tocsr()
    labels, _ = communities(graph, x, 6, seed=0)
    alone, _ = communities(rest, x[:-5], 6, seed=0)
    assert np.unique(labels).size == 6
    means = np.array([x[:-5][labels[:-5] == c].mean(axis=0) for c in range(6)])
    np.testing.assert_array_equal(cdist(x[-5:], means).argmin(axis=1), labels[-5:])
    assert (labels[-5:] == np.bincount(labels[:-5][truth == 5]).argmax()).all()
    assert adjusted_rand_index(labels[:-5], alone) == 1.0


def test_two_tiny_communities_are_united_before_two_large_ones_that_are_nearer():
    labels = np.repeat(np.arange(4), [100, 100, 8, 8])
    x = np.array([0.0, 1.0, 10.0, 11.5])[labels, None]
    np.testing.assert_array_equal(_united(x, labels, 3), np.minimum(labels, 2))


def test_equal_spots_have_no_communities():
    equal = np.ones((1000, 3))
    assert communities(shared_neighbors(equal), equal, 20, seed=0) is None
    assert states_of_communities(equal, 20, seeds=[0, 1]) is None


def test_the_noise_within_states_is_a_unit_matrix_about_the_means_of_communities():
    truth, x = _groups()
    (states,) = states_of_communities(x, 6, seeds=[0])
    of = ((states.features[:, None] - states.lam.m) ** 2).sum(axis=2).argmin(axis=1)
    assert adjusted_rand_index(truth, of) > 0.99
    np.testing.assert_allclose(np.cov((states.features - states.lam.m[of]).T), np.eye(5), atol=0.1)
    np.testing.assert_allclose(states.share, np.bincount(of) / of.size, atol=0.01)
    np.testing.assert_allclose(states.limit.apply(x) @ states.rotation, states.features, rtol=1e-4, atol=1e-4)


def _agreement(sets):
    labels = [((own.features[:, None] - own.lam.m) ** 2).sum(axis=2).argmin(axis=1) for own in sets]
    return np.mean([adjusted_rand_index(a, b) for i, a in enumerate(labels) for b in labels[:i]])


def test_sets_differ_less_from_seed_to_seed_than_mixtures_do():
    x = _groups(n=3000, k=12, apart=1.5)[1]
    with single_threaded():
        made = states_of_communities(x, 12, seeds=range(4))
        learnt = [learn_states(x, 12, seed=seed) for seed in range(4)]
    assert 1.0 > _agreement(made) > _agreement(learnt) + 0.05


def test_of_a_large_section_each_set_has_spots_of_its_own(monkeypatch):
    x = _groups(n=3000)[1]
    for room in (module, restarts):
        monkeypatch.setattr(room, "LEARNT_FROM", 1000)
    one, other = states_of_communities(x, 6, seeds=[0, 1])
    assert one.features.shape == (3000, 5)
    assert not np.array_equal(one.share, other.share)
    precision = 3000 * one.share[:, None] + one.hyperparameters.prior_sd**-2.0  # of all spots, though a third were seen
    np.testing.assert_allclose(np.exp(-one.lam.rho), precision)
    np.testing.assert_array_equal(one.share, states_of_communities(x, 6, seeds=[0])[0].share)
