"""Rows in blocks, against the matrix."""

from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from spatialpdvi.runtime.rows import JoinedRows, SelectedRows, columns_of, some_rows


class _Blocks:
    def __init__(self, matrix):
        self.matrix, self.shape = matrix, matrix.shape

    def blocks(self):
        for first in range(0, self.shape[0], 7):
            yield self.matrix[first : first + 7]

    def split(self, n_parts):
        bounds = np.linspace(0, self.shape[0], n_parts + 1).astype(int)
        return [_Blocks(self.matrix[a:b]) for a, b in pairwise(bounds)]


def test_columns_and_sums_are_of_the_selected_rows():
    matrix = sp.random(30, 8, density=0.4, random_state=0, format="csr")
    spots, genes = np.array([1, 2, 9, 20, 29]), np.array([5, 0])
    found, totals = columns_of(SelectedRows(_Blocks(matrix), spots), genes)
    np.testing.assert_array_equal(found, matrix.toarray()[spots][:, genes])
    np.testing.assert_allclose(totals, matrix.toarray()[spots].sum(axis=1))


def test_only_values_of_the_selected_rows_are_checked():
    matrix = sp.csr_matrix(np.arange(1.0, 31.0)[:, None] * np.ones(3))
    checked = []
    rows = SelectedRows(_Blocks(matrix), np.array([4, 8, 21]))
    for own, expected in ((None, [5, 9, 22]), (np.array([0, 2]), [5, 22])):
        checked.clear()
        found, _ = columns_of(rows, np.array([1]), checked.extend, own)
        assert found[:, 0].tolist() == expected
        assert checked == np.repeat(expected, 3).tolist()
    found, totals = columns_of(matrix, np.array([1]), None, np.array([2, 5]))
    assert (found[:, 0].tolist(), totals.tolist()) == ([3, 6], [9, 18])


def test_some_rows_are_drawn_by_the_seed_and_stay_in_order():
    matrix = np.arange(100)[:, None]
    first, again, other = some_rows(matrix, 1, 20), some_rows(matrix, 1, 20), some_rows(matrix, 2, 20)
    assert first.size == np.unique(first).size == 20
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert (np.diff(first[:, 0]) > 0).all()
    assert some_rows(matrix, 1, 100) is matrix


def test_joined_rows_are_canonical_where_genes_come_in_another_order():
    counts = sp.random(30, 12, density=0.6, format="csr", random_state=0)
    columns = np.array([5, 2, 9, 0])
    (block,) = JoinedRows([(counts, columns)]).blocks()
    rows = np.split(block.indices, block.indptr[1:-1])
    assert all((np.diff(row) > 0).all() for row in rows)
    np.testing.assert_array_equal(block.toarray(), counts.toarray()[:, columns])
