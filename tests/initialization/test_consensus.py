"""One labelling from many."""

import importlib
import tracemalloc

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from spatialpdvi.initialization.consensus import consensus, match_labels, vote_shares
from spatialpdvi.metrics.clustering import adjusted_rand_index

module = importlib.import_module("spatialpdvi.initialization.consensus")  # the name is that of the function as well


def _restarts(n=900, k=4, wrong=0.35, n_restarts=9, seed=0):
    """A truth, and restarts that are each wrong at random and name the classes in an order of their own."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(k, size=n)
    restarts = []
    for _ in range(n_restarts):
        said = np.where(rng.random(n) < wrong, rng.integers(k, size=n), truth)
        restarts.append(rng.permutation(k)[said])
    return truth, restarts


def test_many_that_err_apart_are_right_together():
    truth, restarts = _restarts()
    found = consensus(restarts, 4)
    each = [adjusted_rand_score(truth, said) for said in restarts]
    assert max(each) < 0.6
    assert adjusted_rand_score(truth, found.labels) > 0.97
    pairs = [adjusted_rand_score(a, b) for i, a in enumerate(restarts) for b in restarts[:i]]
    assert found.similarity == pytest.approx(np.mean(pairs))


def test_restarts_that_merged_two_classes_still_vote_for_the_pair():
    truth, restarts = _restarts(wrong=0.1, n_restarts=7)
    merged = [np.where(said == said[truth == 1][0], said[truth == 0][0], said) for said in restarts[:3]]
    found = consensus([*merged, *restarts[3:]], 4)
    assert adjusted_rand_score(truth, found.labels) > 0.95


def test_agreement_is_the_share_that_says_the_same():
    truth, restarts = _restarts(wrong=0.2)
    found = consensus(restarts, 4)
    expected = np.mean([match_labels(said, found.labels, 4)[said] == found.labels for said in restarts], axis=0)
    np.testing.assert_allclose(found.agreement, expected, rtol=1e-6)
    right = found.labels == match_labels(truth, found.labels, 4)[truth]
    assert found.agreement[right].mean() > 0.8


def test_pair_agreement_is_the_chance_that_two_restarts_agree():
    _, restarts = _restarts(wrong=0.3)
    found = consensus(restarts, 4)
    said = [match_labels(own, found.labels, 4)[own] for own in restarts]
    expected = np.mean([(a == b).mean() for i, a in enumerate(said) for b in said[:i]])
    assert found.pair_agreement == pytest.approx(expected)
    assert found.pair_agreement < found.agreement.mean() - 0.1


def test_the_order_and_the_names_of_restarts_do_not_matter_for_the_partition():
    _, restarts = _restarts()
    found = consensus(restarts, 4).labels
    rng = np.random.default_rng(3)
    renamed = [rng.permutation(4)[said] for said in restarts]
    assert adjusted_rand_score(found, consensus(renamed, 4).labels) == 1.0


def test_a_single_restart_is_its_own_consensus():
    _, (said, *_) = _restarts()
    found = consensus([said], 4)
    assert adjusted_rand_score(found.labels, said) == 1.0
    assert (found.agreement == 1.0).all()
    assert found.pair_agreement == 1.0
    assert np.isnan(found.similarity)


def test_hundreds_of_restarts_count_as_five_witnesses():
    _, restarts = _restarts(wrong=0.5, n_restarts=25)
    few = module._expect(*_begun(restarts))
    many = module._expect(*_begun(restarts * 8))
    np.testing.assert_allclose(many.gamma, few.gamma, atol=1e-3)
    np.testing.assert_allclose(many.table[:25] * 8, few.table, rtol=1e-2)


def _begun(restarts, k=4):
    profiles = module._profiles(np.stack(restarts), k)
    return profiles, module._weighted(profiles.labels[:, 0], k)


def test_tables_of_many_restarts_and_classes_are_held_few_times():
    rng = np.random.default_rng(0)
    restarts = [rng.integers(40, size=100) for _ in range(96)]
    module._expect(*_begun(restarts, 40))  # what is compiled is not measured
    begun = _begun(restarts, 40)
    tracemalloc.start()
    try:
        module._expect(*begun)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak / (96 * 40 * 40 * 8) < 6.0


def test_the_similarity_of_many_restarts_is_that_of_some_among_all():
    _, restarts = _restarts(n=300, wrong=0.2, n_restarts=120)
    pairs = [adjusted_rand_index(a, b) for i, a in enumerate(restarts) for b in restarts[:i]]
    assert consensus(restarts, 4).similarity == pytest.approx(np.mean(pairs), abs=0.02)


def test_empty_classes_are_fine():
    said = np.array([0, 0, 1, 1, 1, 0])
    for k in (4, 8):
        found = consensus([said, said, 1 - said], k)
        assert adjusted_rand_score(found.labels, said) == 1.0
        assert found.collapsed is None  # there are as many classes as a restart has


def test_where_restarts_agree_on_next_to_nothing_the_most_typical_is_taken():
    rng = np.random.default_rng(0)
    restarts = [rng.integers(60, size=120) for _ in range(9)]
    restarts[4] = np.where(rng.random(120) < 0.5, restarts[3], restarts[4])
    found = consensus(restarts, 60)
    assert found.collapsed < 30
    mean_ari = [np.mean([adjusted_rand_score(a, b) for b in restarts if b is not a]) for a in restarts]
    np.testing.assert_array_equal(found.labels, restarts[np.argmax(mean_ari)])
    assert np.argmax(mean_ari) in (3, 4)
    expected = np.mean([match_labels(said, found.labels, 60)[said] == found.labels for said in restarts], axis=0)
    np.testing.assert_allclose(found.agreement, expected, rtol=1e-6)


def test_of_some_restarts_that_are_compared_the_most_typical_is_taken(monkeypatch):
    """Of nine every other one is compared, and the last two of these are alike."""
    monkeypatch.setattr(module, "_ALIKE", 5)
    rng = np.random.default_rng(0)
    restarts = [rng.integers(60, size=120) for _ in range(9)]
    restarts[8] = np.where(rng.random(120) < 0.5, restarts[6], restarts[8])
    found = consensus(restarts, 60)
    assert found.collapsed < 30
    assert any(np.array_equal(found.labels, restarts[own]) for own in (6, 8))


def test_the_first_restart_does_not_decide_where_it_says_nothing():
    """EM that starts from a single label cannot tell classes apart; the run of the highest likelihood is taken."""
    truth, restarts = _restarts(wrong=0.2)
    for place in (0, 8):
        found = consensus([*restarts[:place], np.zeros_like(truth), *restarts[place:]], 4)
        assert adjusted_rand_score(truth, found.labels) > 0.95


def test_a_consensus_that_merges_some_classes_stays():
    _, restarts = _restarts()
    assert consensus(restarts, 4).collapsed is None
    merged = [np.where(said == 0, 1, said) for said in restarts]
    assert consensus(merged, 4).collapsed is None


def test_matching_takes_labels_to_those_they_share_most_spots_with():
    np.testing.assert_array_equal(match_labels(np.array([0, 0, 1, 2]), np.array([2, 2, 0, 1]), 3), [2, 0, 1])


def test_many_spots_are_labelled_by_what_em_learns_from_some(monkeypatch):
    truth, restarts = _restarts(n=4000)
    whole = consensus(restarts, 4)
    monkeypatch.setattr(module, "_LEARNT_FROM", 1000)
    monkeypatch.setattr(module, "_BLOCK", 300)
    found = consensus(restarts, 4)
    assert adjusted_rand_score(truth, found.labels) > 0.96
    assert adjusted_rand_score(whole.labels, found.labels) > 0.98


def test_stripes_of_a_lattice_are_found_from_some_of_its_spots_in_any_order(monkeypatch):
    """Every so many spots, in the order of the rows, lie in a few columns of the lattice."""
    side, rng = 200, np.random.default_rng(0)
    ends = np.array([8, 16, 24, 32, 39, 48, 56, 64, 72, 79, 140, side])
    truth = np.tile(np.searchsorted(ends, np.arange(side), side="right"), side)
    votes = [np.where(rng.random(truth.size) < 0.8, truth, rng.integers(12, size=truth.size)) for _ in range(24)]
    monkeypatch.setattr(module, "_COMPARED", 1000)
    monkeypatch.setattr(module, "_LEARNT_FROM", 1000)
    order = rng.permutation(truth.size)
    for spots in (slice(None), order):
        found = consensus([own[spots] for own in votes], 12)
        assert adjusted_rand_index(truth[spots], found.labels) > 0.99
        pairs = [adjusted_rand_index(a, b) for i, a in enumerate(votes[:4]) for b in votes[:i]]
        assert found.similarity == pytest.approx(np.mean(pairs), abs=0.02)


def test_blocks_have_the_labels_of_the_whole():
    _, restarts = _restarts(n=2000)
    votes = np.stack(restarts).astype(np.uint8)
    profiles, gamma = _begun(restarts)
    classes = module._expect(profiles, gamma)
    np.testing.assert_array_equal(module._labels(votes, classes, 4), classes.gamma.argmax(axis=1)[profiles.where])


def test_labels_of_a_small_type_have_the_same_consensus():
    _, restarts = _restarts()
    wide, small = consensus(restarts, 4), consensus([said.astype(np.uint8) for said in restarts], 4)
    np.testing.assert_array_equal(wide.labels, small.labels)
    assert small.labels.dtype == np.int64
    np.testing.assert_array_equal(wide.agreement, small.agreement)


def test_shares_of_votes_are_those_of_the_agreement():
    _, restarts = _restarts()
    found = consensus(restarts, 4)
    shares = vote_shares(restarts, found.labels, 4)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(shares[np.arange(900), found.labels], found.agreement, rtol=1e-6)
