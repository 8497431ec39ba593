"""A sample whose records have been sorted into spots, and what every kind of sample can say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from spatialpdvi.binning.external_sort import RowBlock, Runs, records_within
from spatialpdvi.binning.records import Genes, Records
from spatialpdvi.binning.spots import Spots
from spatialpdvi.runtime.progress import Stage

__all__ = ["BinnedSample", "Sample"]

_LARGEST_BLOCK = 1 << 22  # records: more at once are not faster


class Sample(Protocol):
    """Spots by genes, in blocks of rows."""

    n_values: int  # of the matrix, at the most

    def blocks(self) -> Iterator[RowBlock]:
        """The counts, once."""

    def genes(self) -> Genes:
        """The columns."""

    def obs(self, rows: np.ndarray) -> pd.DataFrame:
        """What is known of rows, by the numbers that `blocks` gave them."""

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Coordinates of rows, (n, 2) float64."""

    def facts(self) -> dict[str, Any]:
        """Format, unit, offset and the like, for ``uns``."""


class BinnedSample:
    """Records added up by spot and gene.

    Parameters
    ----------
    records
        Read here, from the first to the last.
    spots
        What becomes a spot.
    folder
        For what does not fit the memory; its owner removes it.
    memory
        Bytes that sorting may take.
    stage
        Told how many records have been read.
    """

    def __init__(self, records: Records, spots: Spots, *, folder: Path, memory: int, stage: Stage) -> None:
        most = records_within(memory)
        runs, n_read = Runs(folder, most=most), 0
        for block in records.blocks(max(1, min(_LARGEST_BLOCK, most // 8))):
            rows, kept = spots.rows(block)
            runs.add(rows, block.gene[kept], block.counts[kept])
            n_read += block.x.size
            stage.note(f"{n_read:,} records")
        self._runs, self._spots = runs, spots
        self._genes, self._facts = records.genes(), records.facts()
        self.n_values = runs.n_records

    def blocks(self) -> Iterator[RowBlock]:
        """The counts in blocks of rows, once."""
        return self._runs.blocks(len(self._genes.ids))

    def genes(self) -> Genes:
        """Genes of the file."""
        return self._genes

    def obs(self, rows: np.ndarray) -> pd.DataFrame:
        """The names of the spots, and no more."""
        return pd.DataFrame(index=pd.Index(self._spots.names(rows), dtype=object))

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Coordinates of the spots in DNBs, (n, 2)."""
        return self._spots.places(rows)

    def facts(self) -> dict[str, Any]:
        """Those of the file."""
        return {"unit": "DNB", **self._facts}
