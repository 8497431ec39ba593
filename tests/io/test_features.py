import logging

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.section.features import read_features, read_graph

FEATURES = np.random.default_rng(0).normal(size=(12, 3))


def ring(n: int = 12) -> sp.csr_matrix:
    """Weights of a directed ring with loops: neither symmetric nor free of a diagonal."""
    rows = np.arange(n)
    ahead = sp.csr_matrix((np.full(n, 2, dtype=np.float32), (rows, (rows + 1) % n)), shape=(n, n))
    return sp.csr_matrix(ahead + sp.identity(n, dtype=np.float32))


@pytest.mark.parametrize(
    ("dtype", "kept_as"),
    [
        (np.float64, np.float64),
        (np.float32, np.float32),
        (np.float16, np.float32),
        (np.int8, np.float32),
        (np.int64, np.float64),
    ],
)
def test_dense_features_keep_their_digits(adata, source_of, dtype, kept_as) -> None:
    adata.obsm["X_emb"] = np.asfortranarray(FEATURES.astype(dtype))
    found = read_features(source_of(adata), "X_emb")
    assert (found.dtype, found.flags.c_contiguous) == (kept_as, True)
    np.testing.assert_array_equal(found, FEATURES.astype(dtype))


def test_features_of_a_frame(adata, source_of) -> None:
    adata.obsm["X_emb"] = pd.DataFrame(FEATURES, index=adata.obs_names, columns=list("abc"))
    np.testing.assert_array_equal(read_features(source_of(adata), "X_emb"), FEATURES)


def test_sparse_features_stay_sparse_where_that_is_smaller(adata, source_of) -> None:
    thin = np.where(FEATURES > 1, FEATURES, 0)
    adata.obsm["thin"] = sp.csr_matrix(thin)
    adata.obsm["full"] = sp.csc_matrix(FEATURES)
    source = source_of(adata)
    found = read_features(source, "thin")
    assert isinstance(found, sp.csr_matrix)
    assert found.dtype == thin.dtype
    np.testing.assert_array_equal(found.toarray(), thin)
    np.testing.assert_array_equal(read_features(source, "full"), FEATURES)


def test_the_main_matrix_as_features(make, source_of) -> None:
    found = read_features(source_of(make(X=np.eye(12, 7) - 0.5 * np.eye(12, 7, 1))), "X")
    assert isinstance(found, sp.csr_matrix)
    np.testing.assert_array_equal(found.toarray(), np.eye(12, 7) - 0.5 * np.eye(12, 7, 1))


def test_the_users_features_are_not_handed_out(adata) -> None:
    adata.obsm["X_emb"] = FEATURES.astype(np.float32)
    read_features(AnnDataSource(adata), "X_emb")[:] = 0
    assert adata.obsm["X_emb"].any()


def refusal(read, source, key) -> str:
    with pytest.raises(InputError) as caught:
        read(source, key)
    return str(caught.value)


def test_missing_features_list_the_keys(adata, make, source_of) -> None:
    source = source_of(adata)
    assert refusal(read_features, source, "X_pca") == (
        f"Expected obsm['X_pca'] in {source.name}, found keys: 'X', 'spatial'. Name one of these with `rep`."
    )
    assert "found keys: 'spatial'." in refusal(read_features, AnnDataSource(make(X=None)), "X")


def test_features_without_a_column(adata, source_of) -> None:
    adata.obsm["none"] = np.zeros((12, 0))
    assert refusal(read_features, source_of(adata), "none") == (
        "Expected obsm['none'] to have at least one column, found none. Name another with `rep`."
    )


@pytest.mark.parametrize("bad", [np.nan, -np.inf, 1e39])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix])
def test_features_must_be_finite_in_single_precision(adata, source_of, bad, storage) -> None:
    values = np.zeros((12, 3))
    values[0, 0] = 1
    values[[4, 9], 2] = bad
    adata.obsm["X_emb"] = storage(values)
    assert refusal(read_features, source_of(adata), "X_emb") == (
        "Expected obsm['X_emb'] to hold finite numbers within the range of float32, found 2 that "
        "are not (first: spot 'spot4'). Repair them, or name another with `rep`."
    )


def test_features_must_be_numbers(adata, source_of) -> None:
    adata.obsm["names"] = np.full((12, 2), "x", dtype=object)
    assert refusal(read_features, source_of(adata), "names").startswith(
        "Expected obsm['names'] to be a table of numbers, found values of type object."
    )


@pytest.mark.parametrize("storage", [sp.csr_matrix, sp.csc_matrix, lambda graph: graph.toarray()])
def test_a_graph_is_made_symmetric_without_diagonal(adata, source_of, storage, caplog) -> None:
    adata.obsp["ring"] = storage(ring())
    before = adata.obsp["ring"].copy()
    with caplog.at_level(logging.INFO, "spatialpdvi"):
        graph = read_graph(source_of(adata), "ring")
    expected = ring().toarray()
    np.fill_diagonal(expected, 0)
    np.testing.assert_array_equal(graph.toarray(), (expected + expected.T) / 2)
    assert (graph.dtype, graph.nnz, graph.has_canonical_format) == (np.float64, 24, True)
    assert caplog.messages == ["obsp['ring'] is not symmetric (24 entries differ): (A + A^T) / 2 is used."]
    assert np.abs(adata.obsp["ring"] - before).sum() == 0


def test_a_symmetric_graph_stays_as_it_is(adata, source_of, caplog) -> None:
    weights = ring() + ring().T
    adata.obsp["ring"] = sp.csr_matrix(weights)
    with caplog.at_level(logging.INFO, "spatialpdvi"):
        graph = read_graph(source_of(adata), "ring")
    np.testing.assert_array_equal(graph.toarray(), (weights - 2 * np.eye(12)))
    assert caplog.messages == []


def test_a_missing_graph_lists_the_others(adata, source_of) -> None:
    adata.obsp["ring"] = ring()
    source = source_of(adata)
    assert refusal(read_graph, source, "knn") == (
        f"Expected obsp['knn'] in {source.name}, found keys: 'ring'. Name one of these with `graph`."
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [(np.nan, "not finite (first: nan)"), (-3.0, "negative (first: -3)")],
)
def test_weights_must_be_finite_and_not_negative(adata, source_of, value, said) -> None:
    graph = ring()
    graph.data[[2, 5]] = value
    adata.obsp["ring"] = graph
    assert refusal(read_graph, source_of(adata), "ring") == (
        "Expected obsp['ring'] to hold finite weights, none negative, found 2 "
        f"{said}. Name a graph of connectivities with `graph`."
    )


def test_a_graph_of_the_wrong_shape_in_a_handmade_file(path) -> None:
    with h5py.File(path, "r+") as file:
        file["obsp/mine"].attrs["shape"] = (12, 15)
    with H5adSource(path) as source:
        assert refusal(read_graph, source, "mine") == (
            "Expected obsp['mine'] to be 12 x 12 (spots x spots), found 12 x 15. Name another graph with `graph`."
        )


def test_a_graph_without_edges_is_usable(adata, source_of) -> None:
    adata.obsp["loops"] = sp.identity(12, format="csr")
    with pytest.warns(InputWarning) as caught:
        graph = read_graph(source_of(adata), "loops")
    (message,) = [str(one.message) for one in caught if one.category is InputWarning]
    assert message == (
        "obsp['loops'] has no edges, so the fit will not use the coordinates of the spots. Name another graph with "
        "`graph`."
    )
    assert graph.nnz == 0
