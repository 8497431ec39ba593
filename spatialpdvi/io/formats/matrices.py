"""Matrices of any storage as canonical CSR, block by block, without touching the original."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from spatialpdvi.errors import InputError
from spatialpdvi.io.storage.elements import is_group

__all__ = ["FIRST_VALUES", "as_csr", "first_values", "layer_address", "layer_of", "numeric"]

# Enough to tell counts from normalised values in nearly all files, and read in milliseconds.
FIRST_VALUES = 1 << 18
# A dense block and its mask of non-zeros stay well below a gigabyte.
_BLOCK_BYTES = 64 << 20


def layer_address(key: str) -> str:
    """How a layer is named in messages and in `Source.matrix`: ``layers['count']``."""
    return f"layers['{key}']"


def layer_of(where: str) -> str | None:
    """The layer an address stands for, None for ``X`` and ``raw.X``."""
    if where.startswith("layers['") and where.endswith("']"):
        return where[len("layers['") : -len("']")]
    return None


def as_csr(matrix: Any, name: str) -> sp.csr_matrix:
    """Canonical CSR (sorted, no duplicates) of a dense or sparse matrix, on disk or in memory.

    Parameters
    ----------
    matrix
        (n, m): an array, an open HDF5 dataset or zarr array, or any SciPy sparse container.
    name
        What messages call it.

    Returns
    -------
    (n, m). It may share memory with `matrix`: read it, do not write to it.
    """
    if not sp.issparse(matrix):
        return _dense_to_csr(matrix, name)
    csr = sp.csr_matrix(matrix)
    # A damaged file could point outside the matrix, which compiled code would follow.
    csr.check_format(full_check=True)
    csr = sp.csr_matrix((numeric(csr.data, name), csr.indices, csr.indptr), shape=csr.shape)
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return csr


def first_values(matrix: Any) -> np.ndarray:
    """At most about `FIRST_VALUES` of the values of a dense or sparse matrix, flat."""
    if is_group(matrix) or sp.issparse(matrix):
        data = matrix["data"] if is_group(matrix) else matrix.data
        return np.asarray(data[:FIRST_VALUES])
    n_rows = max(1, FIRST_VALUES // max(1, matrix.shape[1]))
    return np.asarray(matrix[:n_rows]).ravel()


def numeric(values: np.ndarray, name: str) -> np.ndarray:
    """`values` in a type that SciPy can compute with; a type that holds no numbers is refused."""
    kind = values.dtype.kind
    if kind == "b":
        return values.astype(np.uint8)
    if kind == "f" and values.dtype.itemsize not in {4, 8}:
        return values.astype(np.float32 if values.dtype.itemsize < 4 else np.float64)
    if kind in "iuf":
        return values
    msg = (
        f"Expected {name} to hold numbers, found values of type {values.dtype}. "
        "Convert them to numbers, or name another matrix."
    )
    raise InputError(msg)


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
