"""Rows of a matrix, all at once or block by block: what goes over counts once need not know where they are kept."""

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp

__all__ = ["CountRows", "JoinedRows", "Rows", "row_blocks"]


class Rows(Protocol):
    """A matrix that is read in contiguous blocks of rows, as often as is asked."""

    shape: tuple[int, int]

    def blocks(self) -> Iterator[sp.csr_matrix]:
        """Blocks of rows in their order, each canonical CSR of all columns; not to be written to."""


CountRows: TypeAlias = sp.csr_matrix | Rows


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

    def blocks(self) -> Iterator[sp.csr_matrix]:
        """Blocks of rows in their order, canonical CSR."""
        for rows, columns in self._parts:
            for block in row_blocks(rows):
                taken = block[:, columns]
                taken.sort_indices()
                yield taken
