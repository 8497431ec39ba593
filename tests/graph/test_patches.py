"""Patches of any shape of tissue: all spots once, balanced, compact, with exactly their edges."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialpdvi.graph.neighbors import mutual_knn
from spatialpdvi.graph.patches import make_patches
from spatialpdvi.options.stages import default_n_patches

SHAPES = {
    "cloud": lambda rng, n: rng.random((n, 2)),
    "line": lambda rng, n: np.stack([rng.random(n), np.zeros(n)], axis=1),
    "one place": lambda rng, n: np.zeros((n, 2)),
    "ring": lambda rng, n: np.stack([f(2 * np.pi * rng.random(n)) for f in (np.cos, np.sin)], axis=1),
    "two islands": lambda rng, n: rng.random((n, 2)) + 100.0 * (rng.random((n, 1)) < 0.1),
    "space": lambda rng, n: rng.random((n, 3)),
}


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from(sorted(SHAPES)),
    n=st.integers(1, 120),
    share=st.floats(0, 1),
    k=st.integers(1, 8),
    seed=st.integers(0, 20),
)
def test_every_spot_is_in_one_balanced_patch_with_its_edges(shape, n, share, k, seed):
    rng = np.random.default_rng(seed)
    points = SHAPES[shape](rng, n)
    graph = mutual_knn(points, k)
    upper = sp.triu(graph).tocsr()
    upper.data = rng.random(upper.nnz) + 0.1
    graph = (upper + upper.T).tocsr()
    n_patches = 1 + int(share * (n - 1))
    order, patches, kept, n_dropped = make_patches(points, graph, n_patches)
    assert sorted(order) == list(range(n))
    assert n_dropped == 0
    assert len(patches) == n_patches
    sizes = np.array([p.stop - p.start for p in patches])
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= np.ceil(np.log2(n_patches)) + 1
    assert [p.start for p in patches] == [0, *np.cumsum(sizes)[:-1]]
    # the edges of all patches, led back to the user's numbers, are the graph
    rows, cols, values = [], [], []
    for p in patches:
        local = np.concatenate([np.arange(p.start, p.stop), p.halo_rows])
        rows.append(order[np.repeat(np.arange(p.start, p.stop), np.diff(p.indptr))])
        cols.append(order[local[p.indices]])
        values.append(p.weights)
        assert not np.isin(p.halo_rows, np.arange(p.start, p.stop)).any()
    back = sp.csr_matrix((np.concatenate(values), (np.concatenate(rows), np.concatenate(cols))), shape=(n, n))
    assert (abs(back - kept) > 0).nnz == 0
    assert (abs(kept - graph) > 0).nnz == 0


@pytest.mark.parametrize("cross", [True, False])
def test_spots_of_one_colour_share_no_edge(cross):
    points = np.random.default_rng(0).random((500, 2))
    for p in make_patches(points, mutual_knn(points, 12), 7, keep_cross_edges=cross).patches:
        n_own = p.stop - p.start
        colour = np.searchsorted(p.colour_start, np.arange(n_own), side="right")
        rows = np.repeat(np.arange(n_own), np.diff(p.indptr))
        own = p.indices < n_own
        assert own.any()
        assert (colour[rows[own]] != colour[p.indices[own]]).all()
        assert p.colour_start[0] == 0
        assert p.colour_start[-1] == n_own
        assert cross == (not own.all())


def test_cells_keep_the_order_of_neighbours_and_share_nothing_within_a_wave():
    points = np.random.default_rng(0).random((6000, 2))
    for p in make_patches(points, mutual_knn(points, 12), 3).patches:
        rows, starts, waves = p.cells
        n = p.stop - p.start
        assert sorted(rows) == list(range(n))
        assert waves.tolist() == [0, 4, 6, 7]
        assert starts[0, 0] == 0
        assert starts[-1, -1] == n
        bounds = np.append(starts[:, 0], n)
        cell = np.empty(n, dtype=int)
        cell[rows] = np.searchsorted(bounds, np.arange(n), side="right") - 1
        wave = np.searchsorted(waves, cell, side="right") - 1
        place = np.empty(n, dtype=int)
        place[rows] = np.arange(n)
        colour = np.searchsorted(p.colour_start, np.arange(n), side="right")
        i = np.repeat(np.arange(n), np.diff(p.indptr))
        own = p.indices < n
        i, j = i[own], p.indices[own]
        assert ((wave[i] != wave[j]) | (cell[i] == cell[j])).all()
        assert ((colour[i] < colour[j]) == (place[i] < place[j])).all()
        assert (wave == 0).mean() > 0.5


def test_patches_of_a_square_are_compact():
    """Cutting 16 patches from a lattice leaves few edges between them: at most twice those of a 4 x 4 grid."""
    axis = np.arange(64.0)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    dropped = make_patches(points, mutual_knn(points, 4), 16, keep_cross_edges=False).n_dropped
    assert 0 < dropped <= 2 * 6 * 64


def test_a_slanted_tissue_is_cut_across():
    t = np.random.default_rng(0).random((2000, 2)) * [100, 1]
    turned = t @ np.array([[1, 1], [-1, 1]]) / np.sqrt(2)
    order, patches, *_ = make_patches(turned, mutual_knn(turned, 4), 8)
    spans = [np.ptp(t[order[p.start : p.stop], 0]) for p in patches]
    assert max(spans) < 2 * 100 / 8


@pytest.mark.parametrize(("n", "expected"), [(1, 1), (60, 2), (3_600, 9), (20_000, 15), (150_000, 30)])
def test_default_number_of_patches(n, expected):
    assert default_n_patches(n) == expected
    assert default_n_patches(n, 4) == min(n, 4 * expected)


def test_sections_have_patches_in_proportion_to_their_spots_and_one_at_least():
    places = np.random.default_rng(0).random((410, 2))
    samples = [np.arange(300), np.arange(300, 400), np.arange(400, 410)]
    graph = mutual_knn(places, 4)
    found = make_patches(places, graph, 8, keep_cross_edges=False, samples=samples)
    section = np.searchsorted([300, 400], found.order, side="right")
    of = [set(section[patch.start : patch.stop].tolist()) for patch in found.patches]
    assert all(len(own) == 1 for own in of)
    assert np.bincount([own.pop() for own in of]).tolist() == [6, 2, 1]
    assert found.n_dropped == (graph.nnz - found.graph.nnz) // 2 > 0
