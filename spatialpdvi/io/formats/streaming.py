"""A matrix on disk, read in blocks of rows as often as needed; it is never in memory as a whole.

Long arrays are read on all cores: HDF5 itself decompresses the chunks of an array one after the other.
"""

import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.sparse as sp

from spatialpdvi.errors import InputError, option
from spatialpdvi.io.formats.matrices import as_csr
from spatialpdvi.io.formats.opening import opened
from spatialpdvi.io.storage.elements import is_array, is_hdf5
from spatialpdvi.io.storage.zarr_stores import whole
from spatialpdvi.runtime.threads import n_threads

__all__ = ["FileRows", "read_range"]

_VALUES = 1 << 23  # stored values of a block: some 100 MB with their columns
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
        """Yield blocks of rows in their order, as canonical CSR.

        Raises
        ------
        InputError
            Where the file is gone or damaged, or holds the matrix by columns, so that blocks of rows cannot be read.
        """
        with opened(self.path) as file:
            element = file[self.element]
            blocks = self._dense(element) if is_array(element) else self._sparse(element)
            while True:
                try:
                    block = next(blocks)
                except StopIteration:
                    return
                except (InputError, MemoryError):  # has its own message
                    raise
                # Whatever h5py, zarr or a codec raise here, the element is damaged.
                except Exception as error:
                    raise InputError(
                        f"to read {self.name} of {str(self.path)!r}",
                        f"a damaged element ({error})",
                        "Write the file again with a current anndata.",
                    ) from error
                yield block

    def _sparse(self, group: Any) -> Iterator[sp.csr_matrix]:
        if group.attrs.get("encoding-type") != "csr_matrix":
            raise InputError(
                f"{self.name} of {str(self.path)!r} to be stored by rows (CSR), because it is read block by block",
                "it stored by columns",
                f"Write it as CSR, or give more memory with {option('memory')}.",
            )
        indptr = whole(group)["indptr"][self._first : self._first + self.shape[0] + 1].astype(np.int64)
        first = 0
        while first < self.shape[0]:
            last = int(np.searchsorted(indptr, indptr[first] + _VALUES, side="right")) - 1
            last = min(max(last, first + 1), self.shape[0])
            start, stop = int(indptr[first]), int(indptr[last])
            data, indices = read_range(group["data"], start, stop), read_range(group["indices"], start, stop)
            own = (indptr[first : last + 1] - start).astype(np.int32 if stop - start < 2**31 else np.int64)
            yield as_csr(sp.csr_matrix((data, indices, own), shape=(last - first, self.shape[1])), self.name)
            first = last

    def _dense(self, dataset: Any) -> Iterator[sp.csr_matrix]:
        step = max(1, _VALUES // max(1, self.shape[1]))
        whole(dataset)
        end = self._first + self.shape[0]
        for first in range(self._first, end, step):
            yield as_csr(np.asarray(dataset[first : min(first + step, end)]), self.name)


def read_range(dataset: Any, start: int = 0, stop: int | None = None) -> np.ndarray:
    """Return ``dataset[start:stop]`` of a 1-D dataset of HDF5 or array of zarr.

    Zarr itself decompresses chunks in parallel. In HDF5 files, chunks with no filters but gzip and shuffle are read as
    they are stored and decompressed in parallel, which zlib does without holding the interpreter's lock; all other
    datasets are read by HDF5.
    """
    stop = dataset.shape[0] if stop is None else stop
    if not is_hdf5(dataset) or stop - start < _FEW or n_threads() < 2 or not _is_plain_gzip(dataset):
        return np.asarray(dataset[start:stop])
    # looked up once: h5py reads them from the file each time
    size, shuffled = dataset.chunks[0], dataset.shuffle
    out = np.empty(stop - start, dtype=dataset.dtype)

    def load(first: int) -> None:
        unfiltered, stored = dataset.id.read_direct_chunk((first,))
        # a filter may have been skipped for a chunk when it was written
        values = dataset[first : first + size] if unfiltered else _decoded(stored, out.dtype, size, shuffled=shuffled)
        low, high = max(first, start), min(first + size, stop)
        out[low - start : high - start] = values[low - first : high - first]

    with ThreadPoolExecutor(n_threads()) as pool:
        for _ in pool.map(load, range(start - start % size, stop, size)):
            pass  # an exception of a chunk is raised here
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
    raw = np.frombuffer(zlib.decompress(stored, bufsize=size * kind.itemsize), dtype=np.uint8)
    if shuffled:
        raw = np.ascontiguousarray(raw.reshape(kind.itemsize, -1).T).ravel()
    values = raw.view(kind)
    if values.size != size:
        msg = f"a chunk of {values.size} values instead of {size}"
        raise ValueError(msg)
    return values
