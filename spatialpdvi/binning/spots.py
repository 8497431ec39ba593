"""What becomes a spot: a square of the chip, or a cell."""

from typing import Protocol

import numpy as np
import pandas as pd

from spatialpdvi.binning.external_sort import LARGEST_ROW
from spatialpdvi.binning.records import HALF, RecordBlock, checked_places
from spatialpdvi.errors import InputError

__all__ = ["Cells", "Spots", "Squares"]

_SIDE_BITS = np.uint64(23)
_SIDE = np.uint64((1 << 23) - 1)


class Spots(Protocol):
    """Which spot each record belongs to, as a number that orders the rows."""

    def rows(self, block: RecordBlock) -> tuple[np.ndarray, np.ndarray | slice]:
        """Numbers of the spots (m,) uint64, and which records of the block they are of."""

    def names(self, rows: np.ndarray) -> list[str]:
        """``obs_names`` of rows."""

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Coordinates of rows, (n, 2) float64, in DNBs of the file's own frame."""


class Squares:
    """Squares of ``size`` x ``size`` DNBs; their corners are multiples of the size, as in a GEF of SAW.

    A square with its corner at (a, b) has the DNBs a..a+size-1, b..b+size-1, is called ``a_b`` and lies at their mean,
    (a + (size-1)/2, b + (size-1)/2). Rows are ordered by a, then b.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def rows(self, block: RecordBlock) -> tuple[np.ndarray, np.ndarray | slice]:
        """Column and row of the square on the chip in one number."""
        _check_places(block)
        column, row = ((values // self.size + HALF).astype(np.uint64) for values in (block.x, block.y))
        return (column << _SIDE_BITS) | row, slice(None)

    def names(self, rows: np.ndarray) -> list[str]:
        """``x_y`` of the corners."""
        corners = self._corners(rows)
        return [f"{x}_{y}" for x, y in zip(*corners.T.tolist(), strict=True)]

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Centres, (n, 2)."""
        return self._corners(rows) + (self.size - 1) / 2

    def _corners(self, rows: np.ndarray) -> np.ndarray:
        both = [(rows >> _SIDE_BITS).astype(np.int64), (rows & _SIDE).astype(np.int64)]
        return (np.column_stack(both) - HALF) * self.size


class Cells:
    """Cells of a GEM: called by their numbers, each at the mean place of its molecules; those outside are left out."""

    def __init__(self) -> None:
        self._sums = pd.DataFrame({"x": [], "y": [], "count": []}, dtype=np.float64, index=pd.Index([], dtype=np.int64))

    def rows(self, block: RecordBlock) -> tuple[np.ndarray, np.ndarray | slice]:
        """Numbers of the cells, of the records that lie in one."""
        _check_places(block)
        cell = block.cell if block.cell is not None else np.zeros(block.x.size, dtype=np.int64)
        if cell.size and not (cell.min() >= 0 and cell.max() <= LARGEST_ROW):
            value = cell.min() if cell.min() < 0 else cell.max()
            msg = f"Expected numbers of cells from 0 to {LARGEST_ROW:,}, found {value:,}. Check the column of cells."
            raise InputError(msg)
        inside = np.flatnonzero(cell)
        cell, count = cell[inside], block.counts[inside]
        # sums of whole numbers below 2^53: exact, and so the same in any order
        sums = pd.DataFrame({"x": block.x[inside] * count, "y": block.y[inside] * count, "count": count}, dtype=float)
        parts = [self._sums, sums.groupby(cell).sum()]
        self._sums = pd.concat(parts).groupby(level=0).sum()
        return cell.astype(np.uint64), inside

    def names(self, rows: np.ndarray) -> list[str]:
        """Numbers of the cells."""
        return [str(row) for row in rows.tolist()]

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Mean places of the molecules, (n, 2)."""
        sums = self._sums.loc[rows.astype(np.int64)]
        return sums[["x", "y"]].to_numpy() / sums[["count"]].to_numpy()


def _check_places(block: RecordBlock) -> None:
    for values in (block.x, block.y):
        checked_places(values, "the chip")
