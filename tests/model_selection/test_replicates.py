"""Halves of the data: what they share and what they do not."""

import numpy as np
import pytest
import scipy.sparse as sp

from spatialpdvi.model_selection.replicates import gene_halves, spot_halves

AXIS = np.arange(20.0)
LATTICE = np.stack(np.meshgrid(AXIS, AXIS), axis=-1).reshape(-1, 2)
WHOLE = [np.arange(400)]


def _weights(n_neighbors, *, samples=WHOLE, coordinates=LATTICE, seed=0):
    """Of every spot's features in either half's averages (n, n): those of the unit vectors."""
    return spot_halves(np.eye(len(coordinates)), coordinates, n_neighbors, samples=samples, seed=seed)


def test_no_spot_is_in_both_halves():
    first, second = (half.any(axis=0) for half in _weights(8))
    assert not (first & second).any()
    assert (first | second).all()
    assert 150 < first.sum() < 250


@pytest.mark.parametrize(("n_neighbors", "taken"), [(0, 1), (1, 1), (2, 2), (8, 5), (18, 10)])
def test_each_half_averages_half_as_many_spots_as_a_fit(n_neighbors, taken):
    for half in _weights(n_neighbors):
        assert (np.count_nonzero(half, axis=1) == taken).all()
        assert half.sum(axis=1) == pytest.approx(1.0)
        assert half.max() == pytest.approx(1.0 / taken)


def test_a_spot_is_in_its_own_half_s_average():
    first, second = _weights(8)
    assert ((np.diag(first) > 0) ^ (np.diag(second) > 0)).all()


def test_neighbours_are_near_and_of_the_same_section():
    twice = np.concatenate([LATTICE, LATTICE])
    samples = [np.arange(400), np.arange(400, 800)]
    for half in _weights(8, samples=samples, coordinates=twice):
        assert not half[:400, 400:].any()
        assert not half[400:, :400].any()
        rows, columns = np.nonzero(half)
        assert np.linalg.norm(twice[rows] - twice[columns], axis=1).max() < 6.0


def test_the_unit_of_the_coordinates_does_not_matter():
    x = np.random.default_rng(0).normal(size=(400, 3))
    halves = spot_halves(x, LATTICE, 8, samples=WHOLE, seed=2)
    in_microns = spot_halves(x, 0.137 * LATTICE, 8, samples=WHOLE, seed=2)
    assert all(np.array_equal(a, b) for a, b in zip(halves, in_microns, strict=True))


def test_noise_is_not_shared_and_tissue_is():
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(400, 1))
    tissue = (LATTICE[:, :1] > 10) * 4.0
    of_noise, of_tissue = (spot_halves(x, LATTICE, 18, samples=WHOLE, seed=0) for x in (noise, tissue))
    correlation = [np.corrcoef(halves.first[:, 0], halves.second[:, 0])[0, 1] for halves in (of_noise, of_tissue)]
    assert abs(correlation[0]) < 0.25
    assert correlation[1] > 0.9


def test_few_spots_are_enough():
    halves = spot_halves(np.arange(4.0)[:, None], np.zeros((4, 2)), 6, samples=[np.arange(4)], seed=0)
    assert all(np.isfinite(half).all() for half in halves)
    # of a section of one spot, one half has none
    alone = spot_halves(np.arange(2.0)[:, None], np.zeros((2, 2)), 6, samples=[np.array([0]), np.array([1])], seed=0)
    for half in alone:
        np.testing.assert_array_equal(half, [[0.0], [1.0]])


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
def test_no_gene_is_in_both_halves(make):
    rng = np.random.default_rng(0)
    scaled = rng.poisson(1.0, size=(60, 12)).astype(np.float32)
    halves = gene_halves(make(scaled), 3, seed=0)
    assert [half.shape for half in halves] == [(60, 3), (60, 3)]
    others = []
    for gene in range(12):
        changed = scaled.copy()
        changed[:, gene] = changed[::-1, gene]
        moved = [
            not np.allclose(np.abs(a), np.abs(b), atol=1e-4)
            for a, b in zip(halves, gene_halves(make(changed), 3, seed=0), strict=True)
        ]
        others.append(moved)
    assert all(sum(moved) == 1 for moved in others)
    assert sum(moved[0] for moved in others) == 6


def test_too_few_genes_that_vary_have_no_halves():
    scaled = np.ones((60, 8), dtype=np.float32)
    scaled[:30, :3] = 2.0
    assert gene_halves(scaled, 3, seed=0) is None
