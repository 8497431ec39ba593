"""Rows of a matrix, all at once or block by block: what goes over counts once need not know where they are kept."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import scipy.sparse as sp

__all__ = ["CountRows", "JoinedRows", "Rows", "SpreadRows", "by_part", "row_blocks"]

_R = TypeVar("_R")


class Rows(Protocol):
    """A matrix that is read in contiguous blocks of rows, as often as is asked."""

    shape: tuple[int, int]

    def blocks(self) -> Iterator[sp.csr_matrix]:
        """Blocks of rows in their order, each canonical CSR of all columns; not to be written to."""

    def split(self, n_parts: int) -> "Sequence[Rows]":
        """The same rows in about so many contiguous parts, which can travel to other processes."""


@runtime_checkable
class SpreadRows(Rows, Protocol):
    """Rows that other processes read."""

    def by_part(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """``function(part, *arguments)`` of every part, in the order of the rows, called where the part is read."""


CountRows: TypeAlias = sp.csr_matrix | Rows


def by_part(counts: CountRows, function: Callable[..., _R], *arguments: Any) -> list[_R]:
    """What a function returns of every part of the rows: of all at once, unless others read them."""
    if isinstance(counts, SpreadRows):
        return counts.by_part(function, *arguments)
    return [function(counts, *arguments)]


def row_blocks(counts: CountRows) -> Iterator[sp.csr_matrix]:
    """Blocks of rows in their order; a matrix in memory is a single one."""
    if isinstance(counts, sp.csr_matrix):
        yield counts
    else:
        yield from counts.blocks()


class JoinedRows:
    """Rows of several matrices, one after the other, each with its columns brought into one order.

    Parameters
    ----------
    parts
        The matrices, each with the columns (genes,) that are taken of it.
    """

    def __init__(self, parts: Sequence[tuple[CountRows, np.ndarray]]) -> None:
        self._parts = parts
        self.shape = (sum(rows.shape[0] for rows, _ in parts), parts[0][1].size)

    def split(self, n_parts: int) -> "list[JoinedRows]":
        """Parts of each matrix by itself; one that is in memory stays whole."""
        parts = []
        for rows, columns in self._parts:
            if isinstance(rows, sp.csr_matrix):
                parts.append(JoinedRows([(rows, columns)]))
                continue
            share = max(1, round(n_parts * rows.shape[0] / max(1, self.shape[0])))
            parts += [JoinedRows([(part, columns)]) for part in rows.split(share)]
        return parts

    def blocks(self) -> Iterator[sp.csr_matrix]:
        """Blocks of rows in their order, canonical CSR."""
        for rows, columns in self._parts:
            for block in row_blocks(rows):
                taken = block[:, columns]
                taken.sort_indices()
                yield taken
