"""Coordinates that are not those of the spots: nothing but how little neighbours are alike gives them away."""

import anndata
import numpy as np
import pytest
import scipy.sparse as sp

from spatialpdvi import InputWarning, fit, predict
from spatialpdvi.graph.build import _similarity, warn_of_places
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.section.section import read_section
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.options.stages import GraphSettings
from spatialpdvi.synthetic import simulate

FAST = {"k": 3, "n_init": 1, "n_top_genes": 60, "states": "off"}


@pytest.fixture(scope="module")
def section():
    return simulate(n_spots=1_200, n_genes=80, k=3, signal=2.0, easy=True)


def _shuffled(adata, rows=slice(None)):
    """The same spots, some of which have the places of others."""
    moved = adata.copy()
    moved.obsm["spatial"][rows] = np.random.default_rng(0).permutation(moved.obsm["spatial"][rows])
    return moved


def test_shuffled_places_are_warned_of_in_a_fit_and_a_prediction(section):
    result = fit(section.copy(), **FAST)
    with pytest.warns(
        InputWarning, match="^Neighbouring spots are hardly more alike than others .* Check that `spatial"
    ):
        fit(_shuffled(section), **FAST | {"k": 2})
    far, places = "are farther from every domain", "^Neighbouring spots are hardly more alike than others"
    with pytest.warns(InputWarning, match=far), pytest.warns(InputWarning, match=places):
        predict(_shuffled(section), model=result.model)
    predict(section.copy(), model=result.model)


def test_the_section_whose_places_are_shuffled_is_named(section):
    both = anndata.concat({"right": section, "wrong": _shuffled(section)}, label="slice", index_unique="_")
    with pytest.warns(InputWarning, match="^Neighbouring spots of 'wrong' are hardly more alike"):
        fit(both, **FAST, sample_key="slice")


def test_a_given_graph_that_joins_others_is_named(section):
    adata, n = section.copy(), section.n_obs
    order = np.random.default_rng(1).permutation(n)
    ring = sp.csr_matrix((np.ones(n), (order, np.roll(order, 1))), shape=(n, n))
    adata.obsp["ring"] = ring + ring.T
    with pytest.warns(InputWarning, match="Check that `spatial_key` and the graph given by `graph` have"):
        fit(adata, **FAST, graph="ring")


def test_few_spots_and_sparse_features_say_nothing(section):
    fit(_shuffled(section)[:900].copy(), **FAST)
    read = read_section(AnnDataSource(_shuffled(section)))
    graph = sp.csr_matrix((section.n_obs, section.n_obs))
    warn_of_places(read, graph, graph, GraphSettings.of(FitOptions(**FAST)))


def _planes(section, z, *, step=1.0):
    """The section in five planes, one above the other, and the name of each spot's plane."""
    plane = np.arange(section.n_obs) % 5
    adata = section.copy()
    adata.obsm["spatial"] = np.column_stack([step * section.obsm["spatial"], np.asarray(z)[plane]])
    adata.obs["plane"] = [f"plane {number}" for number in plane]
    return adata


def test_planes_that_are_numbered_instead_of_placed_are_warned_of(section):
    numbered = r"^The third axis of `spatial_key` has the numbers 0 to 4, while neighbouring spots of a plane are \d"
    fit(_planes(section, range(5), step=0.04), **FAST)  # as far apart as the spots
    fit(_planes(section, range(5)), **FAST, sample_key="plane")  # no spot has neighbours in another plane
    fit(_planes(section, np.arange(5) * 25.0), **FAST)
    with pytest.warns(InputWarning, match=numbered):
        result = fit(_planes(section, range(5)), **FAST)
    with pytest.warns(InputWarning, match=numbered):
        fit(_planes(section, range(5)), **FAST, sample_key="plane", across_sections=True)
    with pytest.warns(InputWarning, match=numbered):
        predict(_planes(section, range(5)), model=result.model)


def test_likeness_is_the_correlation_with_the_mean_of_the_neighbours():
    """Wherever zero is, and whatever the weights of the edges are."""
    rng, n = np.random.default_rng(0), 2000
    x = rng.normal([0.0, 50.0, -1e3], 1.0, size=(n, 3))
    rows = np.repeat(np.arange(n), rng.integers(1, 9, n))
    half = sp.csr_matrix((rng.uniform(0.5, 2.0, rows.size), (rows, rng.integers(n, size=rows.size))), shape=(n, n))
    half.setdiag(0)
    half.eliminate_zeros()
    graph = (half + half.T).tocsr()
    x[:, 0] = graph @ x[:, 0]
    means = np.array([x[graph[i].indices].mean(axis=0) for i in range(n)])
    expected = max(np.corrcoef(x[:, f], means[:, f])[0, 1] for f in range(3))
    assert _similarity(x, np.arange(n), graph) == pytest.approx(expected)
