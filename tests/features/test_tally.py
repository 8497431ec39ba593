"""A tally says of the counts what the matrix says, however the rows are cut."""

import anndata
import numpy as np
import pytest
import scanpy as sc
import scipy.sparse as sp
from conftest import Cut

from spatialpdvi.features.scaling import ColumnMoments, is_constant, normalised_genes, take_genes
from spatialpdvi.features.selection import select_genes, tally
from spatialpdvi.kernels.counts import column_products, group_moments, project_rows


@pytest.fixture
def counts():
    """Counts over four orders of magnitude, some far beyond those that are tallied one by one."""
    rng = np.random.default_rng(1)
    rate = 0.1 + rng.gamma(0.4, 8.0, size=200) * rng.gamma(2.0, 0.5, size=(150, 1))
    rate[:60, :10] *= 300.0
    return sp.csr_matrix(rng.poisson(rate).astype(np.float32))


@pytest.mark.parametrize("step", [1, 7, 150])
def test_sums_are_those_of_the_matrix(counts, step):
    found = tally(Cut(counts, step))
    dense = counts.toarray().astype(float)
    assert dense.max() > 1000
    np.testing.assert_array_equal(found.totals, dense.sum(axis=1))
    np.testing.assert_array_equal(found.spots(), (dense > 0).sum(axis=0))
    for limit in (None, np.linspace(0.5, 900.0, 200)):
        clipped = dense if limit is None else np.minimum(dense, limit)
        total, squares = found.clipped_sums(limit)
        np.testing.assert_allclose(total, clipped.sum(axis=0), rtol=1e-12)
        np.testing.assert_allclose(squares, (clipped**2).sum(axis=0), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.int64, np.uint16, np.float64])
def test_the_type_of_the_counts_does_not_matter(counts, dtype):
    found, other = tally(counts), tally(counts.astype(dtype))
    for a, b in zip(found, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("n_top", [20, 100, 190])
def test_genes_are_scanpys_also_where_counts_are_clipped(counts, n_top):
    table = sc.pp.highly_variable_genes(
        anndata.AnnData(counts.copy()), flavor="seurat_v3", n_top_genes=n_top, inplace=False
    )
    np.testing.assert_array_equal(select_genes(tally(counts), n_top), np.flatnonzero(table["highly_variable"]))


@pytest.mark.parametrize("step", [1, 40, 150])
@pytest.mark.parametrize("known", [0.0, 0.3, 1.0, 2.0])
def test_columns_taken_block_by_block_are_the_matrix_columns(counts, step, known):
    genes = np.arange(1, 200, 3)
    taken = take_genes(Cut(counts, step), genes, int(known * counts[:, genes].nnz))
    assert taken.dtype == np.float32
    assert taken.has_sorted_indices
    np.testing.assert_array_equal(taken.toarray(), counts[:, genes].toarray())


def test_a_column_is_constant_only_where_it_has_one_value_in_all_rows():
    x = np.array([[1, 0, 2, 0, -1], [1, 0, 2, 3, 0], [1, 0, 0, 3, 0]], dtype=np.float32)
    np.testing.assert_array_equal(is_constant(sp.csr_matrix(x)), [True, True, False, False, False])
    np.testing.assert_array_equal(is_constant(x), [True, True, False, False, False])


@pytest.mark.parametrize("step", [1, 7, 150])
@pytest.mark.parametrize("n_teams", [1, 3])
def test_products_of_columns_are_those_of_the_matrix_with_the_same_bits_for_any_blocks_and_teams(counts, step, n_teams):
    values = normalised_genes(counts, tally(counts).totals, target_sum=1e3, transform="log1p")
    found = []
    for blocks, teams, version in ((Cut(values, step), n_teams, "parallel"), (Cut(values, 150), 1, "serial")):
        products, moments = np.zeros((200, 200)), ColumnMoments(*values.shape)
        for block in blocks.blocks():
            getattr(column_products, version)(block.data, block.indices, block.indptr, teams, products)
            moments.add(block)
        found.append((products, moments.mean(), moments.sd()))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
    dense = values.toarray().astype(float)
    np.testing.assert_allclose(found[0][0], np.triu(dense.T @ dense), rtol=1e-12)
    np.testing.assert_allclose(found[0][2], dense.std(axis=0, ddof=1), rtol=1e-9)


def test_rows_are_projected_as_by_a_product(counts):
    rng = np.random.default_rng(0)
    loadings, shift = rng.normal(size=(200, 5)), rng.normal(size=5)
    values, expected = counts.astype(np.float32), counts.toarray().astype(float) @ loadings + shift
    for version in (project_rows.serial, project_rows.parallel):
        out = np.empty((150, 5), dtype=np.float32)
        version(values.data, values.indices, values.indptr, loadings, shift, out)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-3)


def test_logarithms_of_the_largest_count_in_the_table_and_the_next():
    """In plain Python, which notices an index beyond the table."""
    x = np.ones((1, 65), dtype=np.uint16)
    x[0, :2] = 64, 63
    given, one = sp.csr_matrix(x), np.zeros(1, dtype=np.int64)
    sums, squares, present = np.zeros((1, 65)), np.zeros((1, 65)), np.zeros((1, 65), dtype=np.int64)
    group_moments.serial.py_func(
        given.data, given.indices, given.indptr, one, np.array([0, 1]), one, 1e4, sums, squares, present
    )
    np.testing.assert_allclose(sums[0], np.log1p(1e4 * x[0] / x.sum()), rtol=1e-6)
