"""A matrix on disk read in contiguous blocks of rows, as often as is asked; it is never in memory as a whole."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats.chunks import read_range
from spatialpdvi.io.formats.matrices import as_csr
from spatialpdvi.io.formats.opening import opened
from spatialpdvi.io.storage.elements import is_array
from spatialpdvi.io.storage.zarr_stores import whole

__all__ = ["FileRows", "stored_bytes"]

_VALUES = 1 << 23  # stored values of a block: some 100 MB with their columns


class FileRows:
    """Rows of a sparse (CSR) or dense matrix on disk; the file is open only while blocks are read.

    Parameters
    ----------
    path
        The h5ad, or the folder of a zarr store.
    element
        Of the matrix in the file: ``X``, ``raw/X``, ``layers/counts``.
    name
        What messages call it.
    shape
        (n, genes) of what is read.
    first
        The first row that is read.
    """

    def __init__(self, path: str | Path, element: str, name: str, shape: tuple[int, int], *, first: int = 0) -> None:
        self.path, self.element, self.name, self.shape, self._first = Path(path), element, name, shape, first

    def split(self, n_parts: int) -> list["FileRows"]:
        """The same rows in parts, which other processes can read."""
        path, bounds = self.path.absolute(), [self.shape[0] * part // n_parts for part in range(n_parts + 1)]
        return [
            FileRows(path, self.element, self.name, (last - first, self.shape[1]), first=self._first + first)
            for first, last in pairwise(bounds)
            if last > first
        ]

    def blocks(self) -> Iterator[sp.csr_matrix]:
        """Blocks of rows in their order, canonical CSR.

        Raises
        ------
        InputError
            Where the file has gone, is damaged, or holds the matrix by columns, of which rows cannot be read.
        """
        with opened(self.path) as file:
            element = file[self.element]
            blocks = self._dense(element) if is_array(element) else self._sparse(element)
            while True:
                try:
                    block = next(blocks)
                except StopIteration:
                    return
                except (InputError, MemoryError):  # a sentence of its own
                    raise
                # Whatever damaged bytes make h5py, zarr or a codec raise, the file is to blame.
                except Exception as error:
                    msg = (
                        f"Expected to read {self.name} of '{self.path}', found a damaged element ({error}). "
                        "Write the file again with a current anndata."
                    )
                    raise InputError(msg) from error
                yield block

    def _sparse(self, group: Any) -> Iterator[sp.csr_matrix]:
        if group.attrs.get("encoding-type", group.attrs.get("h5sparse_format")) not in {"csr_matrix", "csr"}:
            msg = (
                f"Expected {self.name} of '{self.path}' to be stored by rows (CSR), to be read block by block, found "
                "it by columns. Write it as CSR, or give more --memory."
            )
            raise InputError(msg)
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


def stored_bytes(element: Any) -> int:
    """Memory that a matrix takes when it is read as a whole: of a dense one at most as much as it would as CSR."""
    if is_array(element):
        return int(element.size) * (element.dtype.itemsize + 4)
    arrays = [element[name] for name in ("data", "indices", "indptr")]
    return sum(int(array.size) * array.dtype.itemsize for array in arrays)
