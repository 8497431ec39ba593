"""Sorted runs: the sums of a plain dictionary, however little may be held."""

import numpy as np
import pytest

from spatialpdvi.binning import external_sort as module
from spatialpdvi.binning.external_sort import LARGEST_GENE, LARGEST_ROW, Runs
from spatialpdvi.errors import InputError


def _result(runs, n_genes):
    rows, found = [], {}
    for block in runs.blocks(n_genes):
        assert block.counts.has_canonical_format
        assert block.counts.dtype == np.int32
        assert (np.diff(block.counts.indptr) > 0).all()
        rows.append(block.rows)
        matrix = block.counts.tocoo()
        for row, gene, n in zip(block.rows[matrix.row], matrix.col, matrix.data, strict=True):
            assert (int(row), int(gene)) not in found  # of a row nothing comes later
            found[int(row), int(gene)] = int(n)
    assert (np.diff(np.concatenate(rows).astype(np.float64)) > 0).all()
    return found


@pytest.mark.parametrize("most", [10, 100, 700, 10**6])
def test_sums_are_those_of_a_dictionary(tmp_path, most):
    rng = np.random.default_rng(0)
    runs, expected = Runs(tmp_path, most=most), {}
    for _ in range(30):
        rows, genes, counts = rng.integers(40, size=60), rng.integers(9, size=60), rng.integers(1, 5, size=60)
        rows = np.where(rng.random(60) < 0.1, LARGEST_ROW, rows).astype(np.uint64)
        for key in zip(rows.tolist(), genes.tolist(), counts.tolist(), strict=True):
            expected[key[:2]] = expected.get(key[:2], 0) + key[2]
        runs.add(rows, genes, counts)
    assert bool(list(tmp_path.iterdir())) == (most <= 700)
    assert runs.n_records >= len(expected)
    assert _result(runs, 9) == expected


def test_a_row_with_more_values_than_may_be_held_comes_whole(tmp_path):
    runs = Runs(tmp_path, most=20)
    for first in range(0, 500, 50):
        runs.add(np.full(50, 3, np.uint64), np.arange(first, first + 50), np.ones(50, np.int64))
        runs.add(np.arange(50, dtype=np.uint64), np.full(50, LARGEST_GENE), np.ones(50, np.int64))
    found = _result(runs, LARGEST_GENE + 1)
    assert [found[3, gene] for gene in range(500)] == [1] * 500
    assert [found[row, LARGEST_GENE] for row in range(50)] == [10] * 50


def test_nothing_gives_nothing(tmp_path):
    runs = Runs(tmp_path, most=10)
    assert list(runs.blocks(3)) == []
    runs.add(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))
    assert list(runs.blocks(3)) == []


def test_sums_beyond_the_type_of_the_result_are_refused(tmp_path):
    runs = Runs(tmp_path, most=10)
    with pytest.raises(InputError, match=r"at most 2,147,483,647 molecules of a gene in a spot, found 2,147,483,648\."):
        runs.add(np.zeros(2, np.uint64), np.zeros(2, np.int64), np.full(2, 1 << 30))


def test_memory_is_divided_by_what_a_record_takes():
    assert module.records_within(64 * 10**6) == 10**6
    assert module.records_within(1) == 1 << 16


def test_records_that_are_added_up_are_counted_once(tmp_path):
    """Their number says how much room the result needs on the disk."""
    runs = Runs(tmp_path, most=100)
    for _ in range(10):
        runs.add(np.arange(40, dtype=np.uint64), np.zeros(40, np.int64), np.ones(40, np.int64))
        assert 40 <= runs.n_records <= 100
    assert set(_result(runs, 1).values()) == {10}
