"""Domains found again: what counts, and by how much."""

from types import SimpleNamespace

import numpy as np
import pytest

from spatialpdvi.features.smoothing import neighbor_averages
from spatialpdvi.initialization.restarts import in_unit_range
from spatialpdvi.model_selection import stability
from spatialpdvi.model_selection.replicates import Halves
from spatialpdvi.model_selection.stability import Replication, found_again, persistence


def test_all_domains_found_again_are_as_many_as_there_are():
    labels = np.repeat([0, 1, 2], [5, 3, 9])
    assert found_again(labels, labels, 3) == pytest.approx(3.0)
    assert found_again(labels, (labels + 1) % 3, 3) == pytest.approx(3.0)  # names do not matter


def test_a_domain_counts_by_what_is_shared_less_what_is_not():
    first = np.repeat([0, 1], [6, 6])
    second = np.repeat([0, 1], [4, 8])
    # {0..5} and {0..3} share 4, once each, and 2 are of the first alone: (8 - 2) / 10; 6 of 6 and 8: (12 - 2) / 14
    assert found_again(first, second, 2) == pytest.approx(6 / 10 + 10 / 14)


def test_a_domain_that_is_not_found_again_takes_from_the_sum():
    split = np.repeat([0, 1, 2], [10, 5, 5])
    whole = np.repeat([0, 1, 2], [10, 10, 0])
    # the 10 are found, 5 of 10 too in part: (10 - 5) / 15; the other 5 have an empty partner
    assert found_again(split, whole, 3) == pytest.approx(1 + 5 / 15 - 1)
    assert found_again(whole, whole, 3) == pytest.approx(2 - 1)


def test_chance_has_no_domains():
    rng = np.random.default_rng(0)
    assert found_again(rng.integers(6, size=5_000), rng.integers(6, size=5_000), 6) < -3.5


def test_domains_persist_where_one_splits():
    three = np.repeat([0, 1, 2], [8, 8, 8])
    four = np.repeat([0, 1, 2, 3], [8, 8, 4, 4])
    crossed = np.tile([0, 1, 2, 3, 4, 5], 4)
    found = persistence([three, four, crossed])
    on, back = (1 + 1 + 0.5) / 3, (1 + 1 + 0.5 + 0.5) / 4
    assert found[0] == pytest.approx(on)
    assert back > found[1] > found[2]


def test_every_split_of_the_spots_has_its_own_seed_and_every_other_one_averages_over_twice_as_many(monkeypatch):
    splits = {}

    def halves(x, _, n_neighbors, *, samples, seed):
        splits.setdefault(seed, []).append(n_neighbors)
        return Halves(x, x)

    monkeypatch.setattr(stability, "spot_halves", halves)
    monkeypatch.setattr(stability, "_labels", lambda *_, **__: np.arange(60) % 2)
    section = SimpleNamespace(coordinates=np.zeros((60, 2)), neighbourhood_groups=lambda across: [np.arange(60)])
    raw = SimpleNamespace(components=np.random.default_rng(0).normal(size=(60, 3)), scaled=None)
    replication = Replication(section, raw, SimpleNamespace(seed=5), across=False)
    assert replication.of(2, n_neighbors=8, n_components=3).net == 2.0
    assert list(splits.values()) == [[4, 8, 16], [8, 16, 32]] * 3
    assert list(splits) == np.random.default_rng(5).integers(2**32, size=6).tolist()


def test_two_of_six_splits_are_of_genes_and_all_are_averaged_as_a_fit_of_that_number_is(monkeypatch):
    """Features are those components that it has, averages do not leave their section, and halves are labelled alike."""
    rng, labelled, seeds = np.random.default_rng(0), [], []
    x, blocks = rng.normal(size=(60, 3)), [np.arange(30), np.arange(30, 60)]

    def of_genes(scaled, width, *, seed):
        seeds.append((width, seed))
        return Halves(x, x)

    def labels(by_scale, k, *, seed):
        labelled.append((by_scale, k, seed))
        return np.arange(60) % k

    monkeypatch.setattr(stability, "gene_halves", of_genes)
    monkeypatch.setattr(stability, "_labels", labels)
    section = SimpleNamespace(
        coordinates=np.tile(rng.random((30, 2)), (2, 1)),
        neighbourhood_groups=lambda across: blocks,
        spots_of_samples=lambda: blocks,
    )
    raw = SimpleNamespace(components=x, scaled=np.ones((60, 8)))
    replication = Replication(section, raw, SimpleNamespace(seed=5, correct="none"), across=False)
    assert seeds == [(3, seed) for seed in np.random.default_rng(5).integers(2**32, size=6)[:2]]
    for n_neighbors, n_components in ((4, 2), (8, 3)):
        labelled.clear()
        replication.of(2, n_neighbors=n_neighbors, n_components=n_components)
        assert [own[1:] for own in labelled] == [(2, 5)] * 12
        scales = [n_neighbors // 2, n_neighbors, 2 * n_neighbors]
        for by_scale, *_ in labelled[-4:]:
            for own, scale in zip(by_scale, scales, strict=True):
                (mean,) = neighbor_averages(x, section.coordinates, (scale,), samples=blocks)
                np.testing.assert_array_equal(own, in_unit_range(mean)[:, :n_components])


def test_persistence_is_the_jaccard_index_of_domains_with_the_numbers_beside():
    three, four = np.repeat([0, 1, 2], [8, 8, 8]), np.repeat([0, 1, 2, 3], [8, 8, 4, 4])
    np.testing.assert_allclose(persistence([three, four]), [(1 + 1 + 0.5) / 3, (1 + 1 + 0.5 + 0.5) / 4])
