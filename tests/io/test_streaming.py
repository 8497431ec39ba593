"""Matrices read block by block and on all cores are those that are read at once."""

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from anndata import AnnData

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats import streaming
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.formats.streaming import read_range
from spatialpdvi.io.section.counts import read_counts
from spatialpdvi.runtime.rows import JoinedRows, row_blocks


@pytest.fixture
def counts():
    rng = np.random.default_rng(0)
    dense = rng.poisson(0.4, size=(90, 40)).astype(np.float32)
    dense[7] = 0
    dense[7, 3] = 1
    return sp.csr_matrix(dense)


def _file(tmp_path, x, **options):
    path = tmp_path / "section.h5ad"
    AnnData(x).write_h5ad(path, **options)
    return path


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("values", [1, 50, 10**6])
def test_blocks_of_rows_are_the_matrix(counts, tmp_path, monkeypatch, dense, values):
    monkeypatch.setattr(streaming, "_VALUES", values)
    path = _file(tmp_path, counts.toarray() if dense else counts)
    with H5adSource(path) as source:
        rows = source.rows("X")
    blocks = list(rows.blocks())
    assert sum(block.shape[0] for block in blocks) == 90
    assert (len(blocks) == 1) == (values == 10**6)
    assert (abs(sp.vstack(blocks) - counts) > 0).nnz == 0


def test_a_matrix_stored_by_columns_cannot_be_read_by_rows(counts, tmp_path):
    path = _file(tmp_path, counts.tocsc())
    with H5adSource(path) as source:
        rows = source.rows("X")
    with pytest.raises(
        InputError,
        match=r"^Expected X of .* to be stored by rows \(CSR\), because it is read block by block, found it stored by "
        r"columns\. Write it as CSR, or give more memory with `memory`\.$",
    ):
        list(rows.blocks())


def test_values_that_are_no_counts_are_refused_in_any_block(counts, tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "_VALUES", 50)
    monkeypatch.setattr("spatialpdvi.io.formats.matrices.FIRST_VALUES", 10)
    counts.data[-1] = 0.5
    with H5adSource(_file(tmp_path, counts)) as source:
        found = read_counts(source, None, memory=1)
    with pytest.raises(InputError, match=r"Expected X to hold raw counts .*, found 0\.5 \(not a whole number\)\."):
        list(row_blocks(found.matrix))


def test_a_damaged_block_is_one_sentence(counts, tmp_path):
    path = _file(tmp_path, counts)
    with H5adSource(path) as source:
        rows = source.rows("X")
    with h5py.File(path, "r+") as file:
        file["X/indices"][...] = 10_000
    with pytest.raises(InputError, match=r"Expected to read X of .*, found a damaged element"):
        list(rows.blocks())


def test_memory_decides_whether_counts_are_read_in_blocks(counts, tmp_path):
    with H5adSource(_file(tmp_path, counts)) as source:
        stored = source.stored_bytes("X")
        assert stored == counts.data.nbytes + counts.indices.nbytes + counts.indptr.nbytes
        assert isinstance(read_counts(source, None, memory=2 * stored).matrix, sp.csr_matrix)
        assert not isinstance(read_counts(source, None, memory=2 * stored - 1).matrix, sp.csr_matrix)


def test_joined_rows_have_their_columns_in_one_order(counts):
    columns = np.array([5, 2, 9])
    joined = JoinedRows([(counts, np.array([0, 1, 2])), (counts, columns)])
    whole = sp.vstack(list(joined.blocks()))
    assert joined.shape == whole.shape == (180, 3)
    np.testing.assert_array_equal(whole.toarray()[90:], counts.toarray()[:, columns])


@pytest.mark.parametrize(
    "filters", [{"compression": "gzip"}, {"compression": "gzip", "shuffle": True}, {"compression": "lzf"}, {}]
)
@pytest.mark.parametrize("ends", [(0, 5000), (123, 4567), (999, 1000), (4990, 5000)])
def test_any_range_of_any_filter_is_what_hdf5_reads(tmp_path, monkeypatch, filters, ends):
    monkeypatch.setattr(streaming, "_FEW", 1)
    monkeypatch.setattr(streaming, "n_threads", lambda: 3)
    values = np.random.default_rng(0).integers(0, 9, size=5000).astype(np.float32)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = file.create_dataset("data", data=values, chunks=(700,), **filters)
        assert streaming._is_plain_gzip(dataset) == (filters.get("compression") == "gzip")
        np.testing.assert_array_equal(read_range(dataset, *ends), values[slice(*ends)])


def test_chunks_that_were_never_written_are_left_to_hdf5(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "_FEW", 1)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = file.create_dataset("data", shape=(5000,), dtype="f4", chunks=(700,), compression="gzip", fillvalue=3)
        dataset[:700] = 1
        np.testing.assert_array_equal(read_range(dataset), np.repeat([1, 3], [700, 4300]))
