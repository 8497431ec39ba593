"""Matrices read block by block and on all cores are those that are read at once."""

import shutil
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from anndata import AnnData

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats import streaming
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.formats.sources import select_spots
from spatialpdvi.io.formats.streaming import CopiedRows, read_range
from spatialpdvi.io.section.counts import find_counts, read_counts
from spatialpdvi.runtime.rows import JoinedRows, SelectedRows, columns_of, row_blocks

pytestmark = pytest.mark.slow


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
    monkeypatch.setattr(streaming, "BLOCK_VALUES", values)
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
    monkeypatch.setattr(streaming, "BLOCK_VALUES", 50)
    monkeypatch.setattr("spatialpdvi.io.formats.matrices.FIRST_VALUES", 10)
    counts.data[-1] = 0.5
    with H5adSource(_file(tmp_path, counts)) as source:
        found = read_counts(source, None, memory=1)
    with pytest.raises(InputError, match=r"Expected X to hold raw counts .*, found 0\.5 \(not a whole number\)\."):
        list(row_blocks(found.matrix))


@pytest.mark.parametrize("storage", ["csr", "csc", "dense"])
@pytest.mark.parametrize("values", [7, 50, 10**6])
def test_columns_of_parts_and_of_some_rows_are_those_of_the_matrix(counts, tmp_path, monkeypatch, storage, values):
    monkeypatch.setattr(streaming, "BLOCK_VALUES", values)
    chosen, dense = np.array([17, 0, 3]), counts.toarray()
    path = _file(tmp_path, dense if storage == "dense" else counts.asformat(storage))
    with H5adSource(path) as source:
        rows = source.rows("X")
    for parts in ([rows], [half for part in rows.split(2) for half in part.split(3)]):
        if storage != "csc":
            blocks = [block for part in parts for block in part.blocks()]
            np.testing.assert_array_equal(sp.vstack(blocks).toarray(), dense)
        found, totals = map(np.concatenate, zip(*(part.columns(chosen) for part in parts), strict=True))
        np.testing.assert_array_equal(found, dense[:, chosen])
        np.testing.assert_array_equal(totals, dense.sum(axis=1))
    spots = np.array([2, 7, 40, 89])
    found, totals = SelectedRows(rows, spots).columns(chosen)
    np.testing.assert_array_equal(found, dense[spots][:, chosen])
    np.testing.assert_array_equal(totals, dense[spots].sum(axis=1))


@pytest.mark.parametrize("storage", ["csr", "csc", "dense"])
def test_values_that_are_no_counts_are_refused_unless_their_spots_are_left_out(counts, tmp_path, monkeypatch, storage):
    monkeypatch.setattr("spatialpdvi.io.formats.matrices.FIRST_VALUES", 10)
    dense = counts.toarray()
    dense[80, 20] = np.nan
    path = _file(tmp_path, dense if storage == "dense" else sp.csr_matrix(dense).asformat(storage))
    chosen = np.array([0, 20])
    with H5adSource(path) as source:
        kept = np.delete(np.arange(90), 80)
        found, _ = columns_of(find_counts(select_spots(source, kept), None, memory=0).matrix, chosen)
        np.testing.assert_array_equal(found, dense[kept][:, chosen])
        with pytest.raises(InputError, match=r"Expected X to hold raw counts .*, found nan \(not finite\)\."):
            columns_of(find_counts(source, None, memory=0).matrix, chosen)


def test_a_damaged_block_is_one_sentence(counts, tmp_path, monkeypatch):
    path = _file(tmp_path, counts)
    with H5adSource(path) as source:
        rows = source.rows("X")
    with h5py.File(path, "r+") as file:
        file["X/indices"][...] = 10_000
    with pytest.raises(InputError, match=r"Expected to read X of .*, found a damaged element"):
        list(rows.blocks())

    def fail(*_):
        raise ValueError("first.\nsecond")

    monkeypatch.setattr(streaming, "read_range", fail)
    with pytest.raises(InputError, match=r"found a damaged element \(first\)\. Write the file again with a current"):
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
@pytest.mark.parametrize("kind", ["<f4", "<i8", ">i4", "u2"])
def test_any_range_of_any_filter_is_what_hdf5_reads(tmp_path, monkeypatch, filters, ends, kind):
    monkeypatch.setattr(streaming, "_FEW", 1)
    monkeypatch.setattr(streaming, "_TOGETHER", 1500)
    monkeypatch.setattr("spatialpdvi.runtime.threads.n_threads", lambda: 3)
    values = np.random.default_rng(0).integers(0, 60_000, size=5000).astype(kind)
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


class InBlocks:
    """Rows that count how often they are read."""

    def __init__(self, matrix):
        self.matrix, self.shape, self.passes = matrix, matrix.shape, 0

    def blocks(self):
        self.passes += 1
        for first in range(0, self.shape[0], 7):
            yield self.matrix[first : first + 7]


@pytest.fixture
def copied(tmp_path):
    """Make rows and their copy, which is closed in the end."""
    with ExitStack() as stack:

        def make(matrix):
            rows = InBlocks(matrix)
            return rows, stack.enter_context(closing(CopiedRows(rows, tmp_path)))

        yield make


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32, np.uint16, np.int64])
@pytest.mark.parametrize("n_genes", [50, 300, 70_000])
@pytest.mark.parametrize("largest", [3, 255, 256, 65_536])
def test_rows_are_read_once_and_come_back_with_the_same_bits(tmp_path, copied, kind, n_genes, largest):
    if kind == np.uint16 and largest > 65_535:
        pytest.skip("not a value of this type")
    rng = np.random.default_rng(0)
    matrix = sp.random(40, n_genes, density=40 / n_genes, format="csr", random_state=0).astype(kind)
    matrix.data = rng.integers(1, largest, size=matrix.nnz, endpoint=True).astype(kind)
    matrix.data[5] = largest
    rows, copy = copied(matrix)
    first, again, third = (list(copy.blocks()) for _ in range(3))
    assert rows.passes == 1
    for one, two, three in zip(first, again, third, strict=True):
        for part in ("data", "indices", "indptr"):
            expected = getattr(one, part)
            for other in (two, three):
                assert getattr(other, part).dtype == expected.dtype
                np.testing.assert_array_equal(getattr(other, part), expected)
        assert two.has_canonical_format
        assert two.shape == one.shape
    assert not list(tmp_path.iterdir())  # the copy has no name
    copy.close()
    assert sp.vstack(list(copy.blocks())).nnz == matrix.nnz
    assert rows.passes == 2


def test_numbers_that_no_smaller_type_holds_are_copied_as_they_are(copied):
    matrix = sp.csr_matrix(np.array([[0.5, 0, -2.0], [0, 1e9, 3.0]]))
    rows, copy = copied(matrix)
    for _ in range(2):
        np.testing.assert_array_equal(sp.vstack(list(copy.blocks())).toarray(), matrix.toarray())
    assert rows.passes == 1


def test_a_pass_that_stops_early_leaves_no_copy(copied):
    matrix = sp.random(40, 30, density=0.5, format="csr", random_state=0)
    rows, copy = copied(matrix)
    next(copy.blocks())
    assert sp.vstack(list(copy.blocks())).nnz == matrix.nnz
    assert sp.vstack(list(copy.blocks())).nnz == matrix.nnz
    assert rows.passes == 2


@pytest.mark.parametrize("cause", ["no room", "a full disk", "no file can be made"])
def test_without_room_rows_are_read_from_where_they_are(copied, monkeypatch, caplog, cause):
    caplog.set_level("INFO", logger="spatialpdvi")
    matrix = sp.random(40, 30, density=0.5, format="csr", random_state=0)
    if cause == "no room":
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=600))
    elif cause == "a full disk":
        monkeypatch.setattr(streaming.tempfile, "TemporaryFile", lambda **_: Path("/dev/full").open("r+b", buffering=0))  # noqa: SIM115
    else:
        monkeypatch.setattr(streaming.tempfile, "TemporaryFile", _raise_os_error)
    rows, copy = copied(matrix)
    for _ in range(2):
        np.testing.assert_array_equal(sp.vstack(list(copy.blocks())).toarray(), matrix.toarray())
    assert rows.passes == 2
    assert caplog.text.count("has no room for a copy of the counts") == 1


def _raise_os_error(**_):
    raise OSError("read-only")
