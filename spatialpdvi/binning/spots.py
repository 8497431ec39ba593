"""How records become spots: the squares of a chip, or its cells."""

from typing import Protocol

import numpy as np
import pandas as pd

from spatialpdvi.binning.external_sort import LARGEST_ROW
from spatialpdvi.binning.records import FARTHEST, RecordBlock, checked_places
from spatialpdvi.errors import InputError

__all__ = ["CellSpots", "SpotRule", "SquareSpots"]

_SIDE_BITS = np.uint64(23)
_SIDE = np.uint64((1 << 23) - 1)


class SpotRule(Protocol):
    """The spot of each record, as a number that orders the rows."""

    def rows(self, block: RecordBlock) -> tuple[np.ndarray, np.ndarray | slice]:
        """Return the numbers of the spots, (m,) uint64, and the records of the block that belong to them."""

    def names(self, rows: np.ndarray) -> list[str]:
        """Return the ``obs_names`` of rows."""

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return the coordinates of rows, (n, 2) float64, in DNBs of the file's frame."""


class SquareSpots:
    """Squares of ``size`` x ``size`` DNBs; their corners are multiples of the size, as in a GEF of SAW.

    A square with its corner at (a, b) has the DNBs a..a+size-1, b..b+size-1 and the name ``a_b``. Its coordinates are
    their mean, (a + (size-1)/2, b + (size-1)/2). Rows are ordered by a, then b.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def rows(self, block: RecordBlock) -> tuple[np.ndarray, np.ndarray | slice]:
        """Return the column and row of the square on the chip in one number."""
        _check_places(block)
        column, row = ((values // self.size + FARTHEST).astype(np.uint64) for values in (block.x, block.y))
        return (column << _SIDE_BITS) | row, slice(None)

    def names(self, rows: np.ndarray) -> list[str]:
        """Return ``x_y`` of the corners."""
        corners = self._corners(rows)
        return [f"{x}_{y}" for x, y in zip(*corners.T.tolist(), strict=True)]

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return the centres, (n, 2)."""
        return self._corners(rows) + (self.size - 1) / 2

    def _corners(self, rows: np.ndarray) -> np.ndarray:
        both = [(rows >> _SIDE_BITS).astype(np.int64), (rows & _SIDE).astype(np.int64)]
        return (np.column_stack(both) - FARTHEST) * self.size


class CellSpots:
    """Cells of a GEM, named by their numbers, at the mean place of their molecules; molecules outside are left out."""

    def __init__(self) -> None:
        self._sums = pd.DataFrame({"x": [], "y": [], "count": []}, dtype=np.float64, index=pd.Index([], dtype=np.int64))

    def rows(self, block: RecordBlock) -> tuple[np.ndarray, np.ndarray | slice]:
        """Return the numbers of the cells, for the records inside of cells."""
        _check_places(block)
        cell = block.cell if block.cell is not None else np.zeros(block.x.size, dtype=np.int64)
        if cell.size and not (cell.min() >= 0 and cell.max() <= LARGEST_ROW):
            value = cell.min() if cell.min() < 0 else cell.max()
            raise InputError(
                f"numbers of cells from 0 to {LARGEST_ROW:,}",
                f"{value:,}",
                "Check the column of cells.",
            )
        inside = np.flatnonzero(cell)
        cell, count = cell[inside], block.counts[inside]
        # sums of whole numbers below 2^53: exact, and so the same in any order
        sums = pd.DataFrame({"x": block.x[inside] * count, "y": block.y[inside] * count, "count": count}, dtype=float)
        parts = [self._sums, sums.groupby(cell).sum()]
        self._sums = pd.concat(parts).groupby(level=0).sum()
        return cell.astype(np.uint64), inside

    def names(self, rows: np.ndarray) -> list[str]:
        """Return the numbers of the cells."""
        return [str(row) for row in rows.tolist()]

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return the mean places of the molecules, (n, 2)."""
        sums = self._sums.loc[rows.astype(np.int64)]
        return sums[["x", "y"]].to_numpy() / sums[["count"]].to_numpy()


def _check_places(block: RecordBlock) -> None:
    for values in (block.x, block.y):
        checked_places(values, "the chip")
