"""The features of spots, dense or sparse, behind the two products that a mixture needs.

Nothing here may know domains, patches or where the features come from.
"""

from typing import Protocol

import numpy as np
import scipy.sparse as sp

from spatialpdvi.kernels.mixture import (
    N_CHUNKS,
    data_term_csr,
    data_term_dense,
    statistics_csr,
    statistics_dense,
)

__all__ = ["Features", "wrap_features"]


class Features(Protocol):
    """Rows of a feature matrix (n, d)."""

    shape: tuple[int, int]

    def data_term(self, weight: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """``x @ weight - offset``, (n, K) float64, for a weight (d, K) and an offset (K,)."""

    def statistics(self, phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``N = sum_i phi_i`` (K,) and ``S = phi.T @ x`` (K, d), both float64, for posteriors phi (n, K)."""

    def rows(self, start: int, stop: int) -> "Features":
        """Block of rows ``start:stop``, which shares memory with the whole."""

    def detached(self) -> "Features":
        """The same rows without the rest of the matrix whose memory they share, to be sent to another process."""


class _Dense:
    def __init__(self, x: np.ndarray) -> None:
        self._x = x
        self.shape = (int(x.shape[0]), int(x.shape[1]))

    def data_term(self, weight: np.ndarray, offset: np.ndarray) -> np.ndarray:
        out = np.empty((self.shape[0], offset.size))
        data_term_dense(self._x, weight, offset, out)
        return out

    def statistics(self, phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        counts = np.empty((N_CHUNKS, phi.shape[1]))
        sums = np.empty((N_CHUNKS, self.shape[1], phi.shape[1]))
        statistics_dense(self._x, phi, counts, sums)
        return counts.sum(axis=0), np.ascontiguousarray(sums.sum(axis=0).T)

    def rows(self, start: int, stop: int) -> "_Dense":
        return _Dense(self._x[start:stop])

    def detached(self) -> "_Dense":
        return self  # pickling a view writes its own rows alone


class _Csr:
    def __init__(self, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, d: int) -> None:
        self._data, self._indices, self._indptr = data, indices, indptr
        self.shape = (int(indptr.size - 1), d)

    def data_term(self, weight: np.ndarray, offset: np.ndarray) -> np.ndarray:
        out = np.empty((self.shape[0], offset.size))
        data_term_csr(self._data, self._indices, self._indptr, weight, offset, out)
        return out

    def statistics(self, phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        counts = np.empty((N_CHUNKS, phi.shape[1]))
        sums = np.empty((N_CHUNKS, self.shape[1], phi.shape[1]))
        statistics_csr(self._data, self._indices, self._indptr, phi, counts, sums)
        return counts.sum(axis=0), np.ascontiguousarray(sums.sum(axis=0).T)

    def rows(self, start: int, stop: int) -> "_Csr":
        # values are not copied: the row pointers still point into the whole matrix
        return _Csr(self._data, self._indices, self._indptr[start : stop + 1], self.shape[1])

    def detached(self) -> "_Csr":
        first, last = self._indptr[0], self._indptr[-1]
        return _Csr(self._data[first:last], self._indices[first:last], self._indptr - first, self.shape[1])


def wrap_features(x: np.ndarray | sp.csr_matrix | sp.csr_array) -> Features:
    """Wrap features (n, d), a float array or a CSR matrix, for the kernels."""
    if isinstance(x, np.ndarray):
        return _Dense(np.ascontiguousarray(x))
    return _Csr(x.data, x.indices, x.indptr, int(x.shape[1]))
