"""Neighbours, flow directions and edge weights on small cases that can be checked by hand or by brute force."""

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import plain_section
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialpdvi import FitOptions, InputWarning
from spatialpdvi.graph.build import _count_across, build_graph
from spatialpdvi.graph.flow import Borders, border_directions, flow_directions
from spatialpdvi.graph.layers import layer_forms
from spatialpdvi.graph.neighbors import median_spacing, mutual_knn, nearest_spots, order_nearest
from spatialpdvi.graph.weights import scale_weights, weigh_by_layers, weigh_edges
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.section.section import read_section
from spatialpdvi.options.stages import GraphSettings
from spatialpdvi.runtime.progress import Progress


def _lattice(side=12, spacing=1.0):
    axis = np.arange(side) * spacing
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 60), k=st.integers(1, 12), seed=st.integers(0, 99), dims=st.sampled_from([2, 3]))
def test_mutual_neighbours_by_brute_force(n, k, seed, dims):
    points = np.random.default_rng(seed).random((n, dims))
    distance = np.linalg.norm(points[:, None] - points[None], axis=-1)
    np.fill_diagonal(distance, np.inf)
    near = np.zeros((n, n), dtype=bool)
    for i in range(n):
        near[i, np.argsort(distance[i])[: min(k, n - 1)]] = True  # random points do not tie
    np.testing.assert_array_equal(mutual_knn(points, k).toarray() > 0, near & near.T)


def test_spots_at_one_place_are_never_their_own_neighbours():
    points = np.zeros((30, 2))
    pattern = mutual_knn(points, 5)
    assert pattern.diagonal().sum() == 0
    assert (abs(pattern - pattern.T) > 0).nnz == 0
    from scipy.spatial import cKDTree

    index = nearest_spots(cKDTree(points), np.arange(30), 5)
    assert index.shape == (30, 5)
    assert (index != np.arange(30)[:, None]).all()


@pytest.mark.parametrize("scale", [1.0, 1 / 3, 1e-3, 7.3e5])
def test_a_lattice_has_full_shells_in_any_unit(scale):
    pattern = mutual_knn(_lattice(9) * scale, 10)
    assert np.diff(pattern.indptr)[4 * 9 + 4] == 12  # the middle spot: 4 + 4 + 4 at distances 1, sqrt 2 and 2
    assert (abs(pattern - mutual_knn(_lattice(9), 10)) > 0).nnz == 0
    from scipy.spatial import cKDTree

    points = _lattice(9) * scale
    same = nearest_spots(cKDTree(_lattice(9)), np.arange(81), 10)
    np.testing.assert_array_equal(nearest_spots(cKDTree(points), np.arange(81), 10), same)


def test_an_outlier_is_isolated():
    points = np.concatenate([_lattice(5), [[1000.0, 1000.0]]])
    assert mutual_knn(points, 4)[25].nnz == 0


@pytest.mark.parametrize("sizes", [(12, 16), (16, 12), (11, 30), (40, 40)])
def test_spots_at_one_place_are_joined_to_each_other_alone(sizes):
    points = np.repeat([[0.0, 0.0], [5.0, 0.0]], sizes, axis=0)
    pattern = mutual_knn(points, 10).tocoo()
    assert pattern.nnz
    assert (points[pattern.row, 0] == points[pattern.col, 0]).all()


def test_spots_beyond_those_at_one_place_come_by_distance():
    from scipy.spatial import cKDTree

    points = np.array([[0.0, 0.0]] * 6 + [[3.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    rank, near = order_nearest(cKDTree(points), np.array([0]), 3)
    assert near.tolist() == [[1, 2, 3, 4, 5, 7, 8, 9, 6]]
    np.testing.assert_allclose(rank[0] / rank[0, 5], [0, 0, 0, 0, 0, 1, 2, 2, 3])


def test_median_spacing_ignores_duplicates():
    points = _lattice(4, spacing=3.0)
    assert median_spacing(points) == pytest.approx(3.0)
    assert median_spacing(np.repeat(points, 3, axis=0)) == pytest.approx(3.0)
    assert median_spacing(np.zeros((9, 2))) == 0.0


def test_flow_runs_along_a_straight_border():
    points = _lattice(14)
    labels = (points[:, 0] > 6).astype(np.int64)  # a vertical border
    flow = flow_directions(border_directions(points, labels, 40), 2)
    at_border = np.abs(points[:, 0] - 6.5) < 1
    np.testing.assert_allclose(np.abs(flow[at_border, 1]), 1.0, atol=0.1)
    np.testing.assert_allclose(np.linalg.norm(flow[at_border], axis=1), 1.0)
    inside = points[:, 0] < 2
    assert (flow[inside] == 0).all()  # no other label within reach: fewer than 5 spots on one side


@pytest.mark.parametrize("n_axes", [2, 3])
def test_borders_are_those_within_each_section(n_axes):
    rng = np.random.default_rng(n_axes)
    points, labels = rng.random((400, n_axes)), rng.integers(2, size=400)
    samples = [np.arange(0, 400, 2), np.arange(1, 400, 2)]  # on top of each other
    borders = Borders(points, labels, samples, 30)
    assert borders.directions().shape == (400, n_axes)
    for spots in samples:
        alone = border_directions(points[spots], labels[spots], 30)
        assert np.abs(alone).sum(axis=1).all()
        np.testing.assert_array_equal(borders.normals[spots], alone)
        np.testing.assert_array_equal(borders.directions()[spots], flow_directions(alone, n_axes))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_units_do_not_matter(scale):
    points = np.random.default_rng(0).random((300, 2))
    labels = (points[:, 0] + 0.3 * points[:, 1] > 0.6).astype(np.int64)
    np.testing.assert_allclose(
        border_directions(points * scale, labels, 50), border_directions(points, labels, 50), atol=1e-9
    )


def test_the_direction_is_fishers():
    """One spot's neighbourhood, solved with dense linear algebra."""
    rng = np.random.default_rng(1)
    points = rng.random((60, 2)) * [3, 1]
    labels = (points[:, 0] > 1.5).astype(np.int64)
    normal = border_directions(points, labels, 60)[7, :2]  # 60 spots: the neighbourhood is everything
    same = labels == labels[7]
    centred = np.concatenate([points[side] - points[side].mean(axis=0) for side in (same, ~same)])
    within = centred.T @ centred / 60 + median_spacing(points) ** 2 * np.eye(2)
    w = np.linalg.solve(within, points[same].mean(axis=0) - points[~same].mean(axis=0))
    np.testing.assert_allclose(normal, w / np.linalg.norm(w), atol=1e-10)


def test_a_plane_border_in_space_has_its_normal():
    axis = np.arange(7.0)
    points = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
    labels = (points[:, 2] > 3).astype(np.int64)
    normals = border_directions(points, labels, 80)
    middle = (np.abs(points[:, 2] - 3.5) < 1) & (np.abs(points[:, :2] - 3) < 2).all(axis=1)
    np.testing.assert_allclose(np.abs(normals[middle, 2]), 1.0, atol=0.05)


def _weights(points, normals, features, pattern=None, tau=0.7, beta=1.3):
    pattern = mutual_knn(points, 4) if pattern is None else pattern
    return weigh_edges(pattern, points, normals, features=features, tau=tau, beta=beta).toarray()


def test_weights_are_the_formula():
    rng = np.random.default_rng(2)
    points, x = rng.random((40, 2)), rng.normal(size=(40, 5)).astype(np.float32)
    normals = np.zeros((40, 3))
    angle = rng.random(40) * 2 * np.pi
    normals[:, 0], normals[:, 1] = np.cos(angle), np.sin(angle)
    normals[:5] = 0.0
    g = flow_directions(normals, 2)
    pattern = mutual_knn(points, 4).toarray()
    expected = np.zeros((40, 40))
    for i, j in zip(*np.nonzero(pattern), strict=True):
        step = points[j] - points[i]
        along = 0.5 * (abs(g[i] @ step) + abs(g[j] @ step)) / np.linalg.norm(step)  # (r_ij + r_ji) / 2 of the paper
        a, b = x[i].astype(float), x[j].astype(float)
        expected[i, j] = 1.3 * (along + 0.7 * (a @ b / np.linalg.norm(a) / np.linalg.norm(b) + 1))
    np.testing.assert_allclose(_weights(points, normals, x), expected, atol=1e-12)
    np.testing.assert_allclose(_weights(points, normals, sp.csr_matrix(x)), expected, atol=1e-12)


def test_both_copies_of_an_edge_have_the_same_bits():
    rng = np.random.default_rng(3)
    weights = _weights(rng.random((50, 2)), np.zeros((50, 3)), rng.normal(size=(50, 3)))
    np.testing.assert_array_equal(weights, weights.T)
    assert weights.diagonal().sum() == 0


def test_zero_vectors_weigh_nothing_and_are_never_nan():
    points = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    full = sp.csr_matrix(np.ones((3, 3)) - np.eye(3))
    normals = np.array([[0.0, 1.0, 0.0]] * 2 + [[0.0, 0.0, 0.0]])
    x = np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]], dtype=np.float32)
    for features in (x, sp.csr_matrix(x)):
        weights = _weights(points, normals, features, pattern=full, tau=1.0, beta=1.0)
        assert np.isfinite(weights).all()
        assert weights[0, 1] == 0.0  # one place, no expression in 1
        assert weights[1, 2] == pytest.approx(0.5)  # along the flow of 1, no direction in 2, no expression in 1
        assert weights[0, 2] == pytest.approx(2.5)  # along the flow of 0, and twice tau for the same expression


def test_values_of_a_given_graph_multiply():
    points, x = _lattice(4), np.ones((16, 2), dtype=np.float32)
    pattern = mutual_knn(points, 4)
    double = _weights(points, np.zeros((16, 3)), x, pattern=pattern * 2.0)
    np.testing.assert_allclose(double, 2 * _weights(points, np.zeros((16, 3)), x, pattern=pattern))


def test_scale_weights_sum_to_seven_and_leave_the_pattern_as_it_is():
    pattern = mutual_knn(np.random.default_rng(0).normal(size=(200, 2)), 6)
    given = pattern.copy()
    graph = scale_weights(pattern, beta=2.0)
    assert graph.data.sum() / 200 == pytest.approx(14.0)
    assert (graph != graph.T).nnz == 0
    np.testing.assert_array_equal(graph.indices, given.indices)
    assert (pattern != given).nnz == 0
    pattern.data[:2] = 0.0  # an edge of no weight is none
    assert scale_weights(pattern, beta=1.0).nnz == given.nnz - 2
    assert pattern.nnz == given.nnz


def test_beta_scales_once():
    points, x = _lattice(5), np.random.default_rng(0).normal(size=(25, 3))
    strong, weak = (_weights(points, np.zeros((25, 3)), x, beta=b) for b in (3.0, 1.0))
    np.testing.assert_allclose(strong, 3 * weak)
    assert _weights(points, np.zeros((25, 3)), x, beta=0.0).sum() == 0.0


def _layered(side=24, turn=0.5, noise=0.5, seed=0):
    """A lattice on which two features change along one direction; that direction, and which spots are joined."""
    points = _lattice(side)
    across = np.array([np.cos(turn), np.sin(turn)])
    depth = points @ across / 4.0
    x = 2.0 * np.stack([np.sin(depth), np.cos(depth)], axis=1)
    x = x + noise * np.random.default_rng(seed).normal(size=x.shape)
    return points, x.astype(np.float32), across, mutual_knn(points, 10)


def _forms(points, x, pattern):
    return layer_forms(x, points, pattern, samples=[np.arange(len(points))])


@pytest.mark.parametrize("turn", [0.0, 0.5, 2.0])
def test_forms_point_across_the_layers_in_any_unit(turn):
    points, x, across, pattern = _layered(turn=turn)
    forms = _forms(points, x, pattern)
    along = np.array([-across[1], across[0]])
    steep = np.einsum("a,nab,b->n", across, forms, across)
    assert steep.mean() > 0.9
    assert steep.min() > 0.7
    np.testing.assert_allclose(np.trace(forms, axis1=1, axis2=2), 0.0, atol=1e-12)
    assert np.einsum("a,nab,b->n", along, forms, along).max() < -0.7
    np.testing.assert_allclose(_forms(3e-4 * points, 8.0 * x, pattern), forms, atol=1e-9)


def test_forms_of_features_that_vary_by_chance_alone_are_small():
    points, x, _, pattern = _layered()
    rng = np.random.default_rng(3)
    by_chance = np.linalg.norm(_forms(points, rng.normal(size=(len(points), 15)), pattern), 2, axis=(1, 2))
    shuffled = np.linalg.norm(_forms(points, x[rng.permutation(len(x))], pattern), 2, axis=(1, 2))
    assert by_chance.mean() < 0.25
    assert shuffled.mean() < 0.5 * np.linalg.norm(_forms(points, x, pattern), 2, axis=(1, 2)).mean()
    np.testing.assert_array_equal(_forms(points, np.ones((len(points), 3)), pattern), 0.0)


def test_forms_in_three_dimensions_tell_the_normal_of_a_surface():
    rng = np.random.default_rng(0)
    points = rng.random((3_000, 3)) * 10.0
    normal = np.array([2.0, -1.0, 2.0]) / 3.0
    x = np.stack([np.sin(points @ normal), np.cos(points @ normal)], axis=1) + 0.3 * rng.normal(size=(3_000, 2))
    forms = _forms(points, x, mutual_knn(points, 10))
    assert np.median(np.einsum("a,nab,b->n", normal, forms, normal)) > 0.9
    tangent = np.array([1.0, 2.0, 0.0]) / np.sqrt(5.0)
    assert np.median(np.einsum("a,nab,b->n", tangent, forms, tangent)) < -0.4  # -1/2 at least


def test_forms_are_those_of_each_section_by_itself():
    points, x, _, pattern = _layered(side=16)
    both = sp.block_diag([pattern, pattern]).tocsr()
    samples = [np.arange(256), np.arange(256, 512)]
    forms = layer_forms(np.vstack([x, x]), np.vstack([points, points + 5.0]), both, samples=samples)
    alone = _forms(points, x, pattern)
    np.testing.assert_allclose(forms, np.concatenate([alone, alone]), atol=1e-9)


def test_a_section_in_a_plane_has_the_forms_of_two_coordinates_wherever_the_plane_is():
    points, x, _, pattern = _layered(side=16)
    plane = np.linalg.qr(np.random.default_rng(4).normal(size=(3, 2)))[0]
    flat = np.column_stack([points, np.full(len(points), 7.0)])
    for places, axes in ((flat, np.eye(3)[:, :2]), (points @ plane.T + 2.0, plane)):
        forms = _forms(places, x, pattern)
        np.testing.assert_allclose(axes.T @ forms @ axes, _forms(points, x, pattern), atol=1e-6)
        own = weigh_by_layers(pattern, places, forms, anisotropy=0.9, beta=1.0)
        expected = weigh_by_layers(pattern, points, _forms(points, x, pattern), anisotropy=0.9, beta=1.0)
        np.testing.assert_allclose(own.data, expected.data, rtol=1e-6)
    both, samples = sp.block_diag([pattern, pattern]).tocsr(), [np.arange(256), np.arange(256, 512)]
    stacked = layer_forms(
        np.vstack([x, x]), np.vstack([flat, flat + np.array([0.0, 0.0, 50.0])]), both, samples=samples
    )
    np.testing.assert_allclose(stacked[256:], _forms(flat, x, pattern), atol=1e-6)


def test_edges_along_layers_weigh_more_and_rows_still_sum_to_seven():
    points, x, _, pattern = _layered(turn=0.0)
    forms = _forms(points, x, pattern)
    graph = weigh_by_layers(pattern, points, forms, anisotropy=0.6, beta=2.0)
    assert graph.data.sum() / len(points) == pytest.approx(14.0)
    np.testing.assert_array_equal(graph.toarray(), graph.T.toarray())  # the same bits
    middle = 12 * 24 + 12
    assert graph[middle, middle + 24] > 3.0 * graph[middle, middle + 1]  # x changes along the rows of the lattice
    alike = weigh_by_layers(pattern, points, forms, anisotropy=0.0, beta=2.0)
    np.testing.assert_allclose(alike.toarray(), scale_weights(pattern, beta=2.0).toarray())


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_handful_of_spots_has_forms_of_zero_or_finite_ones(n):
    rng = np.random.default_rng(n)
    points = rng.random((n, 2))
    assert np.isfinite(_forms(points, rng.normal(size=(n, 3)), mutual_knn(points, 3))).all()


def test_values_of_a_given_graph_multiply_those_of_layers():
    rng = np.random.default_rng(0)
    places = rng.random((200, 2))
    pattern = mutual_knn(places, 6)
    forms = layer_forms(
        np.column_stack([5 * places[:, 0], rng.normal(size=200)]), places, pattern, samples=[np.arange(200)]
    )
    given = pattern.copy()
    factor = rng.random((200, 200))
    factor = factor + factor.T
    rows, columns = given.nonzero()
    given.data = factor[rows, columns]
    ours, plain = (weigh_by_layers(one, places, forms, anisotropy=0.5, beta=1.0).toarray() for one in (given, pattern))
    expected = plain * factor
    np.testing.assert_allclose(ours, expected * (7.0 * 200 / expected.sum()))


def test_without_a_pull_spots_without_neighbours_are_not_warned_of(recwarn):
    adata = plain_section(n=30)
    adata.obsm["spatial"][0] = 1e6
    section = read_section(AnnDataSource(adata))
    features = np.random.default_rng(0).normal(size=(30, 3))
    for beta, n in ((0.0, 0), (1.0, 1)):
        recwarn.clear()
        settings = GraphSettings.of(FitOptions(k=2, beta=beta, n_neighbors=4))
        build_graph(section, features, np.arange(30) % 2, settings, Progress())
        assert len([w for w in recwarn if "no neighbour" in str(w.message)]) == n


def test_a_spot_that_is_a_section_of_its_own_gets_no_advice_that_cannot_help(recwarn):
    adata = plain_section(n=30)
    adata.obs["slice"] = ["alone"] + ["rest"] * 29
    features = np.random.default_rng(0).normal(size=(30, 3))
    settings = GraphSettings.of(FitOptions(k=2, n_neighbors=4))
    section = read_section(AnnDataSource(adata), sample_key="slice")
    recwarn.clear()  # the reader has warned of it
    build_graph(section, features, np.arange(30) % 2, settings, Progress())
    assert not [w for w in recwarn if "neighbour" in str(w.message)]


@pytest.mark.parametrize("n_patches", [1, 3, 30])
def test_most_spots_that_have_neighbours_in_other_patches_alone_are_told(n_patches, recwarn):
    section = read_section(AnnDataSource(plain_section(n=30)))
    features = np.random.default_rng(0).normal(size=(30, 3))
    options = FitOptions(k=2, n_neighbors=4, n_patches=n_patches, cross_patch_edges=False)
    graph = build_graph(section, features, np.arange(30) % 2, GraphSettings.of(options), Progress()).patching.graph
    n_alone = int((np.diff(graph.indptr) == 0).sum())
    assert n_alone == (30 if n_patches == 30 else 0)
    told = [str(w.message) for w in recwarn if "in their patch" in str(w.message)]
    text = (
        "30 of 30 spots have no neighbour in their patch, so that their domains follow from their features alone. "
        "Lower `n_patches`, or keep edges between patches with `cross_patch_edges=True`."
    )
    assert told == ([text] if n_alone else [])


def test_a_border_is_seen_from_as_many_spots_as_are_asked_for():
    """The spot itself is one of them, so that nine of ten in a row see one spot beyond the border too few."""
    line, labels = np.column_stack([np.arange(10.0), np.zeros(10)]), np.repeat([0, 1], 5)
    assert not border_directions(line, labels, 9).any()
    np.testing.assert_allclose(np.abs(border_directions(line, labels, 10)), np.tile([1.0, 0.0, 0.0], (10, 1)))


def test_edges_across_sections_are_few_where_few_spots_have_them():
    """A tenth of the spots is enough however few edges that makes, and many edges of fewer spots are not."""
    adata = plain_section(n=100)
    adata.obs["slice"] = np.repeat(["a", "b"], 50)
    section = read_section(AnnDataSource(adata), sample_key="slice")

    def joined(pairs):
        rows, columns = np.array(pairs).T
        one_way = sp.csr_matrix((np.ones(len(pairs)), (rows, columns)), shape=(100, 100))
        return sp.csr_matrix(one_way + one_way.T)

    assert _count_across(section, joined([(i, 50 + i) for i in range(5)])) == 5
    with pytest.warns(InputWarning, match=r"^Only 16 of 16 edges join spots of two sections, at 8 of 100 spots"):
        assert _count_across(section, joined([(i, 50 + j) for i in range(4) for j in range(4)])) == 16
