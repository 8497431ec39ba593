"""Matrices as blocks of rows, whether they are in memory, on disk or read by other processes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import scipy.sparse as sp

__all__ = [
    "Blocks",
    "Check",
    "CountRows",
    "JoinedRows",
    "Rows",
    "SelectedRows",
    "SpreadRows",
    "by_part",
    "columns_of",
    "columns_of_blocks",
    "row_blocks",
    "row_sums",
    "slices",
    "some_rows",
]

_BLOCK = 100_000  # spots: temporary arrays of so many are small beside a large section
_R = TypeVar("_R")
_Matrix = TypeVar("_Matrix", np.ndarray, sp.csr_matrix)
Check: TypeAlias = Callable[[np.ndarray], None]  # of values; it raises an error


class Blocks(Protocol):
    """A matrix that can be read repeatedly, in contiguous blocks of rows.

    Attributes
    ----------
    shape
        Numbers of rows and columns.
    """

    shape: tuple[int, int]

    def blocks(self) -> Iterator[sp.csr_matrix]:
        """Yield the blocks in the order of the rows, as canonical CSR with all columns. They must not be changed."""


class Rows(Blocks, Protocol):
    """Blocks of rows whose parts can be read by other processes."""

    def split(self, n_parts: int) -> "Sequence[Rows]":
        """Divide the rows into about ``n_parts`` contiguous parts, which can be sent to other processes."""


@runtime_checkable
class SpreadRows(Rows, Protocol):
    """Rows that are read by other processes."""

    def by_part(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call ``function(part, *arguments)`` in the process of each part, and return the results in row order."""


@runtime_checkable
class ColumnRows(Rows, Protocol):
    """Rows of which single columns can be read without the others in memory, however they are stored."""

    def columns(
        self, chosen: np.ndarray, check: Check | None = None, own: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Do as `columns_of`."""


CountRows: TypeAlias = sp.csr_matrix | Rows


def by_part(counts: CountRows, function: Callable[..., _R], *arguments: Any) -> list[_R]:
    """Return ``function(part, *arguments)`` for each part of the rows; they are one part unless they are spread."""
    if isinstance(counts, SpreadRows):
        return counts.by_part(function, *arguments)
    return [function(counts, *arguments)]


def row_blocks(counts: sp.csr_matrix | Blocks) -> Iterator[sp.csr_matrix]:
    """Yield blocks of rows in order; a matrix in memory is a single block."""
    if isinstance(counts, sp.csr_matrix):
        yield counts
    else:
        yield from counts.blocks()


def row_sums(matrix: sp.csr_matrix) -> np.ndarray:
    """Return the sum of each row of a matrix (n, g), (n,) float64."""
    return np.asarray(matrix.sum(axis=1, dtype=np.float64)).ravel()


def slices(n: int, size: int = _BLOCK) -> Iterator[slice]:
    """Yield slices of at most ``size`` rows that cover n rows in order; temporary arrays are made for one at a time."""
    return (slice(first, min(first + size, n)) for first in range(0, n, size))


def columns_of(
    counts: CountRows, chosen: np.ndarray, check: Check | None = None, own: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return some columns of a matrix and the sum of each of its rows, without the whole matrix in memory.

    Parameters
    ----------
    counts
        (n, genes).
    chosen
        Columns (g,).
    check
        Called with the values of these rows, part by part.
    own
        Numbers of the rows to read, (n,) ascending; None for all.

    Returns
    -------
    tuple
        The columns (n, g) and the sums (n,), both float64.
    """
    if isinstance(counts, ColumnRows):
        return counts.columns(chosen, check, own)
    if own is not None:
        counts = counts[own] if isinstance(counts, sp.csr_matrix) else SelectedRows(counts, own)
    return columns_of_blocks(row_blocks(counts), chosen, check)


def columns_of_blocks(
    blocks: Iterable[sp.csr_matrix], chosen: np.ndarray, check: Check | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Do as `columns_of`, with the blocks of rows of a matrix in their order."""
    found, totals = [np.empty((0, chosen.size))], [np.empty(0)]
    for block in blocks:
        if check is not None:
            check(block.data)
        totals.append(row_sums(block))
        found.append(np.asarray(block[:, chosen].toarray(), dtype=np.float64))
    return np.concatenate(found), np.concatenate(totals)


class JoinedRows:
    """The rows of several matrices, one matrix after the other, with columns selected to match.

    Parameters
    ----------
    parts
        Each matrix with the indices (g,) of the columns to select from it; g is the same for all.
    """

    def __init__(self, parts: Sequence[tuple[CountRows, np.ndarray]]) -> None:
        self._parts = parts
        self.shape = (sum(rows.shape[0] for rows, _ in parts), parts[0][1].size)

    def split(self, n_parts: int) -> "list[JoinedRows]":
        """Divide each matrix separately. A matrix in memory stays whole."""
        parts = []
        for rows, columns in self._parts:
            if isinstance(rows, sp.csr_matrix):
                parts.append(JoinedRows([(rows, columns)]))
                continue
            share = max(1, round(n_parts * rows.shape[0] / max(1, self.shape[0])))
            parts += [JoinedRows([(part, columns)]) for part in rows.split(share)]
        return parts

    def blocks(self) -> Iterator[sp.csr_matrix]:
        """Yield the blocks in the order of the rows, as canonical CSR."""
        for rows, columns in self._parts:
            for block in row_blocks(rows):
                taken = block[:, columns]
                taken.sort_indices()
                yield taken


class SelectedRows:
    """Some of the rows of a matrix.

    Parameters
    ----------
    rows
        All of them, not in memory.
    chosen
        Their numbers, (n,) ascending.
    """

    def __init__(self, rows: Rows, chosen: np.ndarray) -> None:
        self._rows, self._chosen = rows, chosen
        self.shape = (chosen.size, rows.shape[1])

    def split(self, n_parts: int) -> "list[SelectedRows]":
        """Divide all rows, and leave out parts of which none is selected."""
        parts = self._rows.split(n_parts)
        bounds = pairwise(accumulate((part.shape[0] for part in parts), initial=0))
        chosen = [self._between(first, last) for first, last in bounds]
        return [SelectedRows(part, own) for part, own in zip(parts, chosen, strict=True) if own.size]

    def blocks(self) -> Iterator[sp.csr_matrix]:
        """Yield the selected rows of each block."""
        first = 0
        for block in self._rows.blocks():
            own = self._between(first, first + block.shape[0])
            if own.size:
                yield block[own]
            first += block.shape[0]

    def columns(
        self, chosen: np.ndarray, check: Check | None = None, own: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Do as `columns_of`, for the selected rows; values of others are not checked."""
        return columns_of(self._rows, chosen, check, self._chosen if own is None else self._chosen[own])

    def _between(self, first: int, last: int) -> np.ndarray:
        """The selected ones of a range of rows, counted from its first."""
        start, stop = np.searchsorted(self._chosen, (first, last))
        return np.asarray(self._chosen[start:stop] - first)


def some_rows(matrix: _Matrix, seed: int, most: int) -> _Matrix:
    """Return at most so many random rows of a matrix (n, d), in their order; all of them where there are no more.

    Every tenth row would do for rows in any order, but those of a lattice would all lie in a few of its columns.
    """
    n = matrix.shape[0]
    return matrix if n <= most else matrix[np.sort(np.random.default_rng(seed).choice(n, most, replace=False))]
