"""A sample whose records have been sorted into spots, and the interface of every kind of sample."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from spatialpdvi.binning.external_sort import RowBlock, Runs, records_within
from spatialpdvi.binning.records import FARTHEST, Genes, Records
from spatialpdvi.binning.spots import SpotRule
from spatialpdvi.runtime.progress import Stage

__all__ = ["BinnedSample", "Sample"]

_LARGEST_BLOCK = 1 << 22  # records: more at once are not faster


class Sample(Protocol):
    """Spots by genes, in blocks of rows."""

    n_values: int  # of the matrix, at most

    def blocks(self) -> Iterator[RowBlock]:
        """Yield the counts; call it once."""

    def genes(self) -> Genes:
        """Return the genes, which are the columns."""

    def obs(self, rows: np.ndarray) -> pd.DataFrame:
        """Return a table of what is known about rows, by the numbers that `blocks` gave them."""

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return the coordinates of rows, (n, 2) float64."""

    def facts(self) -> dict[str, Any]:
        """Return the format, unit, offset and so on, for ``uns``."""


class BinnedSample:
    """Records added up by spot and gene.

    Parameters
    ----------
    records
        They are read here, from the first to the last.
    spots
        How records become spots.
    folder
        For records that do not fit into memory; the caller removes it.
    memory
        Bytes that sorting may use.
    stage
        Shows how many records have been read.
    """

    def __init__(self, records: Records, spots: SpotRule, *, folder: Path, memory: int, stage: Stage) -> None:
        most = records_within(memory)
        runs, n_read = Runs(folder, most=most), 0
        low, high = (FARTHEST, FARTHEST), (-FARTHEST, -FARTHEST)
        for block in records.blocks(max(1, min(_LARGEST_BLOCK, most // 8))):
            rows, inside = spots.rows(block)
            runs.add(rows, block.gene[inside], block.counts[inside])
            n_read += block.x.size
            if block.x.size:
                low = min(low[0], int(block.x.min())), min(low[1], int(block.y.min()))
                high = max(high[0], int(block.x.max())), max(high[1], int(block.y.max()))
            stage.note(f"{n_read:,} records")
        self._runs, self._spots = runs, spots
        self._genes, self._facts = records.genes(), records.facts()
        self.n_values = runs.n_records
        self.bounds = (*low, *high)  # the least x and y of all records, and the largest

    def blocks(self) -> Iterator[RowBlock]:
        """Yield the counts in blocks of rows; call it once."""
        return self._runs.blocks(len(self._genes.ids))

    def genes(self) -> Genes:
        """Return the genes of the file."""
        return self._genes

    def obs(self, rows: np.ndarray) -> pd.DataFrame:
        """Return a table with the names of the spots and no columns."""
        return pd.DataFrame(index=pd.Index(self._spots.names(rows), dtype=object))

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return the coordinates of the spots in DNBs, (n, 2)."""
        return self._spots.places(rows)

    def facts(self) -> dict[str, Any]:
        """Return what the file says about itself."""
        return {"unit": "DNB", **self._facts}
