"""A matrix on disk, read in blocks of rows as often as needed; it is never in memory as a whole.

Long arrays are read on all cores: HDF5 itself decompresses the chunks of an array one after the other.
"""

import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import scipy.sparse as sp
from isal import isal_zlib  # twice as fast as zlib

from spatialpdvi.errors import InputError, option
from spatialpdvi.io.formats.matrices import as_csr, numeric
from spatialpdvi.io.formats.opening import opened
from spatialpdvi.io.storage.damage import reading
from spatialpdvi.io.storage.elements import encoding_type, is_array, is_hdf5
from spatialpdvi.io.storage.zarr_stores import whole
from spatialpdvi.runtime.rows import Check, Rows, SelectedRows, columns_of_blocks
from spatialpdvi.runtime.threads import ahead, in_blocks

__all__ = ["BLOCK_VALUES", "CopiedRows", "FileRows", "read_range"]

logger = logging.getLogger("spatialpdvi")

BLOCK_VALUES = 1 << 22  # stored values of a block: some 50 MB with their columns
_TOGETHER = 1 << 17  # values that a thread decompresses at a time
_FEW = 1 << 20  # values: fewer are read as fast by HDF5


class FileRows:
    """Rows of a sparse (CSR) or dense matrix on disk; the file is open only while blocks are read.

    Parameters
    ----------
    path
        The h5ad file, or the folder of a zarr store.
    element
        Where the matrix is in the file: ``X``, ``raw/X``, ``layers/counts``.
    name
        Its name in messages.
    shape
        (n, genes) of the rows that are read.
    first
        The first of these rows.
    """

    def __init__(self, path: str | Path, element: str, name: str, shape: tuple[int, int], *, first: int = 0) -> None:
        self.path, self.element, self.name, self.shape, self._first = Path(path), element, name, shape, first

    def split(self, n_parts: int) -> list["FileRows"]:
        """Return the same rows in parts, which other processes can read."""
        path, bounds = self.path.absolute(), [self.shape[0] * part // n_parts for part in range(n_parts + 1)]
        return [
            FileRows(path, self.element, self.name, (last - first, self.shape[1]), first=self._first + first)
            for first, last in pairwise(bounds)
            if last > first
        ]

    def blocks(self) -> Iterator[sp.csr_matrix]:
        """Yield blocks of rows in their order, as canonical CSR; the next one is read while one is used.

        Raises
        ------
        InputError
            Where the file is gone or damaged, or holds the matrix by columns, so that blocks of rows cannot be read.
        """
        return ahead(self._blocks())

    def _blocks(self) -> Iterator[sp.csr_matrix]:
        with opened(self.path) as file:
            element = file[self.element]
            blocks = self._dense(element) if is_array(element) else self._sparse(element)
            while True:
                with self._reading():
                    block = next(blocks, None)
                if block is None:
                    return
                yield block

    def columns(
        self, chosen: np.ndarray, check: Check | None = None, own: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Do as `spatialpdvi.runtime.rows.columns_of`, also where the matrix is stored by columns (CSC).

        Raises
        ------
        InputError
            Where the file is gone or damaged.
        """
        with opened(self.path) as file:
            element = file[self.element]
            if not is_array(element) and encoding_type(element) == "csc_matrix":
                with self._reading():
                    return self._of_columns(whole(element), chosen, check, own)
        blocks = self.blocks() if own is None else SelectedRows(self, own).blocks()
        return columns_of_blocks(blocks, chosen, check)

    def _of_columns(
        self, group: Any, chosen: np.ndarray, check: Check | None, own: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        indptr = group["indptr"][()].astype(np.int64)
        if indptr.size != self.shape[1] + 1 or indptr[0] != 0 or (np.diff(indptr) < 0).any():
            msg = "its columns do not follow one another"
            raise ValueError(msg)
        n_rows = int(group.attrs["shape"][0])
        wanted = np.arange(self.shape[0]) if own is None else own
        place = np.full(n_rows, -1)  # of each row of the matrix among those that are wanted
        place[self._first + wanted] = np.arange(wanted.size)
        found, totals = np.zeros((wanted.size, chosen.size)), np.zeros(wanted.size)
        for start in range(0, int(indptr[-1]), BLOCK_VALUES):
            stop = min(start + BLOCK_VALUES, int(indptr[-1]))
            data, rows = read_range(group["data"], start, stop), read_range(group["indices"], start, stop)
            if data.size < stop - start or rows.size < stop - start or rows.min() < 0 or rows.max() >= n_rows:
                msg = "values are missing, or lie outside of the matrix"
                raise ValueError(msg)
            data, rows = numeric(data, self.name), place[rows.astype(np.int64)]
            inside = rows >= 0
            if check is not None:
                check(data[inside])
            totals += np.bincount(rows[inside], weights=data[inside], minlength=wanted.size)
            for number, column in enumerate(chosen):
                low, high = np.clip(indptr[[column, column + 1]], start, stop) - start
                part = slice(int(low), int(high))
                np.add.at(found[:, number], rows[part][inside[part]], data[part][inside[part]])
        return found, totals

    def _reading(self) -> AbstractContextManager[None]:
        return reading(
            f"to read {self.name} of {str(self.path)!r}",
            "a damaged element ({reason})",
            "Write the file again with a current anndata.",
        )

    def _sparse(self, group: Any) -> Iterator[sp.csr_matrix]:
        if encoding_type(group) != "csr_matrix":
            raise InputError(
                f"{self.name} of {str(self.path)!r} to be stored by rows (CSR), because it is read block by block",
                "it stored by columns",
                f"Write it as CSR, or give more memory with {option('memory')}.",
            )
        indptr = whole(group)["indptr"][self._first : self._first + self.shape[0] + 1].astype(np.int64)
        first = 0
        while first < self.shape[0]:
            last = int(np.searchsorted(indptr, indptr[first] + BLOCK_VALUES, side="right")) - 1
            last = min(max(last, first + 1), self.shape[0])
            start, stop = int(indptr[first]), int(indptr[last])
            data, indices = read_range(group["data"], start, stop), read_range(group["indices"], start, stop)
            own = (indptr[first : last + 1] - start).astype(np.int32 if stop - start < 2**31 else np.int64)
            yield as_csr(sp.csr_matrix((data, indices, own), shape=(last - first, self.shape[1])), self.name)
            first = last

    def _dense(self, dataset: Any) -> Iterator[sp.csr_matrix]:
        step = max(1, BLOCK_VALUES // max(1, self.shape[1]))
        whole(dataset)
        end = self._first + self.shape[0]
        for first in range(self._first, end, step):
            yield as_csr(np.asarray(dataset[first : min(first + step, end)]), self.name)


class _Block(NamedTuple):
    """Where a block lies in the copy, and of what it consists."""

    start: int  # bytes
    shape: tuple[int, int]
    parts: list[tuple[int, np.dtype, np.dtype]]  # indptr, indices, data: length, type in memory, type on disk


class CopiedRows:
    """Rows that are copied to disk when they are first read, uncompressed; from there they are read many times faster.

    Columns and counts take one or two bytes each where they are small enough, and what is read back has the same bits.
    The file has no name, so nothing is left of it when the process ends. It takes at most half of the space that is
    free; rows that need more are read from where they are each time.

    Parameters
    ----------
    rows
        The rows to copy.
    folder
        On the disk that the copy is written to.
    """

    def __init__(self, rows: Rows, folder: Path) -> None:
        self._rows, self._folder, self.shape = rows, folder, rows.shape
        self._file: Any = None
        self._blocks: list[_Block] | None = None  # None until all are in the file
        self._fits = True

    def split(self, n_parts: int) -> list[Rows]:
        """Divide the original rows."""
        return list(self._rows.split(n_parts))

    def close(self) -> None:
        """Give the disk back; the rows can still be read from where they are."""
        if self._file is not None:
            self._file.close()
        self._file, self._blocks = None, None

    def blocks(self) -> Iterator[sp.csr_matrix]:
        """Yield blocks of rows in their order, as canonical CSR; the first time they are read to the end, copy them."""
        return ahead(self._copied() if self._blocks is None else map(self._read, self._blocks))

    def _copied(self) -> Iterator[sp.csr_matrix]:
        """Yield the blocks, and copy each to disk."""
        self.close()
        written, room = list[_Block](), 0
        if self._fits:
            try:
                self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 (close() closes it)
                room = shutil.disk_usage(self._folder).free // 2
            except OSError:
                self._do_without()
        for matrix in self._rows.blocks():
            if self._file is not None and not self._write(matrix, written, room):
                self._do_without()
            yield matrix
        if self._file is not None:
            self._blocks = written

    def _do_without(self) -> None:
        """Make no further copy."""
        self._fits = False
        self.close()
        logger.info(
            "The disk of %s has no room for a copy of the counts, so they are decompressed each time they are needed.",
            self._folder,
        )

    def _write(self, matrix: sp.csr_matrix, written: list[_Block], room: int) -> bool:
        """Append a block to the copy; whether there was room for it."""
        parts = (matrix.indptr, matrix.indices, matrix.data)
        narrow = [_narrowed(part) for part in parts]
        start = self._file.tell()
        if start + sum(part.nbytes for part in narrow) > room:
            return False
        try:
            for part in narrow:
                left = part.view(np.uint8).data
                while left:
                    left = left[self._file.write(left) :]
        except OSError:
            return False
        types = [(part.size, part.dtype, small.dtype) for part, small in zip(parts, narrow, strict=True)]
        written.append(_Block(start, matrix.shape, types))
        return True

    def _read(self, block: _Block) -> sp.csr_matrix:
        self._file.seek(block.start)
        indptr, indices, data = (self._array(*part) for part in block.parts)
        matrix = sp.csr_matrix(block.shape, dtype=data.dtype)
        # not by the constructor, which looks through all indices and may change their type
        matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
        matrix.has_canonical_format = True
        return matrix

    def _array(self, size: int, kind: np.dtype, stored: np.dtype) -> np.ndarray:
        values = np.empty(size, dtype=stored)
        left = values.view(np.uint8).data
        while left:
            n_read = self._file.readinto(left)
            if not n_read:
                msg = "the copy of the counts is shorter than what was written"
                raise OSError(msg)
            left = left[n_read:]
        return values.astype(kind, copy=False)


def _narrowed(values: np.ndarray) -> np.ndarray:
    """Values in the smallest unsigned type that holds them all exactly, or as they are."""
    if values.size and values.min() >= 0:
        largest = values.max()
        for kind in (np.uint8, np.uint16, np.uint32):
            if kind().itemsize < values.itemsize and largest <= np.iinfo(kind).max:
                narrow = values.astype(kind)
                return narrow if values.dtype.kind in "iu" or np.array_equal(narrow, values) else values
    return values


def read_range(dataset: Any, start: int = 0, stop: int | None = None) -> np.ndarray:
    """Return ``dataset[start:stop]`` of a 1-D dataset of HDF5 or array of zarr.

    Zarr itself decompresses chunks in parallel. In HDF5 files, chunks with no filters but gzip and shuffle are read as
    they are stored and decompressed in parallel, without holding the interpreter's lock; all other datasets are read by
    HDF5.
    """
    stop = dataset.shape[0] if stop is None else stop
    if not is_hdf5(dataset) or stop - start < _FEW or not _is_plain_gzip(dataset):
        return np.asarray(dataset[start:stop])
    # looked up once: h5py reads them from the file each time
    size, shuffled = dataset.chunks[0], dataset.shuffle
    out = np.empty(stop - start, dtype=dataset.dtype)

    before = start // size

    def load(chunks: slice) -> None:
        for first in range((before + chunks.start) * size, (before + chunks.stop) * size, size):
            unfiltered, stored = dataset.id.read_direct_chunk((first,))
            # a filter may have been skipped for a chunk when it was written
            values = (
                dataset[first : first + size] if unfiltered else _decoded(stored, out.dtype, size, shuffled=shuffled)
            )
            low, high = max(first, start), min(first + size, stop)
            out[low - start : high - start] = values[low - first : high - first]

    in_blocks(load, -(-stop // size) - before, max(1, _TOGETHER // size))
    return out


def _is_plain_gzip(dataset: h5py.Dataset) -> bool:
    made = dataset.id.get_create_plist()
    filters = {made.get_filter(i)[0] for i in range(made.get_nfilters())}
    known = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE}
    return (
        dataset.chunks is not None
        and h5py.h5z.FILTER_DEFLATE in filters
        and filters <= known
        and dataset.dtype.kind in "iuf"
        and dataset.id.get_num_chunks() == -(-dataset.shape[0] // dataset.chunks[0])  # none left unwritten
    )


def _decoded(stored: bytes, kind: np.dtype, size: int, *, shuffled: bool) -> np.ndarray:
    """Return the ``size`` values of a chunk."""
    raw = np.frombuffer(isal_zlib.decompress(stored, bufsize=size * kind.itemsize), dtype=np.uint8)
    if shuffled:
        first_bytes, raw = raw.reshape(kind.itemsize, -1), np.empty(raw.size, dtype=np.uint8)
        for place, part in enumerate(first_bytes):  # several times as fast as the transpose
            raw[place :: kind.itemsize] = part
    values = raw.view(kind)
    if values.size != size:
        msg = f"a chunk of {values.size} values instead of {size}"
        raise ValueError(msg)
    return values
