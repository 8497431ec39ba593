"""Matrices in memory or on disk: how they are stored, and their values as canonical CSR; originals stay as they are."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from spatialpdvi.errors import InputError
from spatialpdvi.io.storage.elements import encoding_type, is_array, is_group, is_packed

__all__ = [
    "FIRST_VALUES",
    "INDEX_BYTES",
    "Layout",
    "as_csr",
    "first_values",
    "layer_address",
    "layer_of",
    "layout_of",
    "matrix_address",
    "numeric",
]

# Enough to tell counts from normalised values in nearly all files, and read in milliseconds.
FIRST_VALUES = 1 << 18
INDEX_BYTES = 4  # of a column number of a CSR matrix that is made of a dense one
# A dense block and its mask of non-zeros stay well below a gigabyte.
_BLOCK_BYTES = 64 << 20


def layer_address(key: str) -> str:
    """Return how a layer is named in messages and in `Source.matrix`: ``layers['count']``."""
    return f"layers['{key}']"


def matrix_address(layer: str) -> str:
    """Return the address of the matrix that the option ``layer`` names: ``X``, ``raw.X``, or that of a layer."""
    return layer if layer in {"X", "raw.X"} else layer_address(layer)


def layer_of(where: str) -> str | None:
    """Return the layer that an address stands for; None for ``X`` and ``raw.X``."""
    if where.startswith("layers['") and where.endswith("']"):
        return where[len("layers['") : -len("']")]
    return None


def as_csr(matrix: Any, name: str) -> sp.csr_matrix:
    """Return a dense or sparse matrix, on disk or in memory, as canonical CSR (sorted, no duplicates).

    Parameters
    ----------
    matrix
        (n, m): an array, an open HDF5 dataset or zarr array, or any SciPy sparse container.
    name
        Its name in messages.

    Returns
    -------
    (n, m). It may share memory with `matrix`: do not write to it.
    """
    if not sp.issparse(matrix):
        return _dense_to_csr(matrix, name)
    csr = sp.csr_matrix(matrix)
    # A damaged file could point outside the matrix, which compiled code would follow.
    csr.check_format(full_check=True)
    csr = sp.csr_matrix((numeric(csr.data, name), csr.indices, csr.indptr), shape=csr.shape)
    if csr.has_canonical_format:
        return csr
    summed = csr.copy()
    summed.sum_duplicates()
    if summed.nnz < csr.nnz and csr.dtype.kind in "iu":  # the sums of small integers may not fit their type
        summed = csr.astype(np.int64)
        summed.sum_duplicates()
    return summed


def first_values(matrix: Any) -> np.ndarray:
    """Return at most about `FIRST_VALUES` of the values of a dense or sparse matrix, flat."""
    if is_group(matrix) or sp.issparse(matrix):
        data = matrix["data"] if is_group(matrix) else matrix.data
        return np.asarray(data[:FIRST_VALUES])
    n_rows = max(1, FIRST_VALUES // max(1, matrix.shape[1]))
    return np.asarray(matrix[:n_rows]).ravel()


def numeric(values: np.ndarray, name: str) -> np.ndarray:
    """Return values in a type that SciPy can compute with; raise an `InputError` where they are no numbers."""
    kind = values.dtype.kind
    if kind == "b":
        return values.astype(np.uint8)
    if not values.dtype.isnative:  # SciPy computes in the byte order of the machine alone
        values = values.astype(values.dtype.newbyteorder("="))
    if kind == "f" and values.dtype.itemsize not in {4, 8}:
        return values.astype(np.float32 if values.dtype.itemsize < 4 else np.float64)
    if kind in "iuf":
        return values
    raise InputError(
        f"{name} to hold numbers",
        f"values of type {values.dtype}",
        "Convert them to numbers, or name another matrix.",
    )


class Layout(NamedTuple):
    """How large a matrix on disk is and how it is stored."""

    shape: tuple[int, int]
    storage: str  # "csr", "csc" or "dense"
    n_values: int  # that are stored; for a dense matrix all of them
    value_bytes: int  # of one value
    n_bytes: int  # of all its arrays in memory
    packed_bytes: int  # in memory, of those that are compressed in the file

    @property
    def by_rows(self) -> bool:
        """Whether it can be read block by block."""
        return self.storage != "csc"

    @property
    def csr_bytes(self) -> int:
        """The bytes that it takes in memory as CSR; for a dense matrix the most that it can take."""
        return self.n_values * (self.value_bytes + INDEX_BYTES) if self.storage == "dense" else self.n_bytes


def layout_of(element: Any) -> Layout:
    """Return the layout of a dense matrix on disk, or of a sparse one in anndata's form; its values are not read."""
    if is_array(element):
        rows, columns = element.shape if element.ndim == 2 else (element.shape[0], 1)
        size = int(element.size) * element.dtype.itemsize
        packed = size if is_packed(element) else 0
        return Layout((int(rows), int(columns)), "dense", int(element.size), element.dtype.itemsize, size, packed)
    rows, columns = element.attrs["shape"]
    arrays = [element[name] for name in ("data", "indices", "indptr")]
    sizes = [int(array.size) * array.dtype.itemsize for array in arrays]
    return Layout(
        shape=(int(rows), int(columns)),
        storage="csc" if encoding_type(element).startswith("csc") else "csr",
        n_values=int(arrays[0].size),
        value_bytes=arrays[0].dtype.itemsize,
        n_bytes=sum(sizes),
        packed_bytes=sum(size for size, array in zip(sizes, arrays, strict=True) if is_packed(array)),
    )


def _dense_to_csr(matrix: Any, name: str) -> sp.csr_matrix:
    blocks = [sp.csr_matrix(numeric(block, name)) for block in _row_blocks(matrix)]
    if not blocks:
        empty = numeric(np.empty(0, dtype=matrix.dtype), name)
        return sp.csr_matrix(matrix.shape, dtype=empty.dtype)
    return sp.csr_matrix(sp.vstack(blocks, format="csr"))


def _row_blocks(matrix: Any) -> Iterator[np.ndarray]:
    n_rows, n_columns = matrix.shape
    step = max(1, _BLOCK_BYTES // max(1, n_columns * matrix.dtype.itemsize))
    chunks = getattr(matrix, "chunks", None)
    if chunks is not None and step > chunks[0]:
        step -= step % chunks[0]  # no chunk is decompressed twice
    for start in range(0, n_rows, step):
        yield np.asarray(matrix[start : start + step])
