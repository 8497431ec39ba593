"""Cell-bin GEF of Stereo-seq: an HDF5 file with the counts of segmented cells, cell by cell.

``cellBin/cell`` has one record per cell: ``id``, the centre ``x`` and ``y`` in DNBs, where its counts begin and how
many there are (``offset``, ``geneCount``), ``dnbCount``, ``area``, and more. ``cellBin/cellExp`` has the counts cell by
cell (``geneID``, the number of a row of ``cellBin/gene``, and ``count``). ``cellBin/gene`` has the names of the genes,
in ``geneName`` and since SAW 8 also in ``geneID``. The file has the attributes ``offsetX``, ``offsetY`` and
``resolution``. ``geneExp`` (the same counts gene by gene), ``cellBorder`` and ``cellExon`` are not read.

The layout is that of the SAW User Manual, "Expression matrix format" (v8.0, stereotoolss-organization.gitbook.io),
"GEF (Cell Bin)" in github.com/STOmics/SAW (Documents/FileFormat), and what github.com/STOmics/geftools writes
(gef.h, cgef_writer.cpp).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.binning.external_sort import RowBlock
from spatialpdvi.binning.gef import read_genes
from spatialpdvi.binning.hdf5 import MAKE_AGAIN, frame_facts, group_of, table_of
from spatialpdvi.binning.records import Genes, checked_counts, checked_places
from spatialpdvi.errors import InputError
from spatialpdvi.io.storage.damage import reading_file

__all__ = ["CellGef"]

_WHAT = "cell-bin GEF"
_COLUMNS = {"area": "area", "dnbCount": "n_dnbs"}  # of obs, where the file has them


class CellGef:
    """The cells of a cell-bin GEF that have counts, in the order of the file.

    Parameters
    ----------
    file
        Open, read-only.
    path
        Its name, for messages.
    most
        The largest number of counts in a block, unless a single cell has more.
    """

    def __init__(self, file: h5py.File, path: Path, *, most: int) -> None:
        self._file, self._path, self._most = file, path, most
        with reading_file(path, _WHAT):
            group = group_of(file, "cellBin", path, called="cellBin")
            self._cells = table_of(group, "cell", ("id", "x", "y", "geneCount"), path)[:]
            self._values = table_of(group, "cellExp", ("geneID", "count"), path)
            genes = table_of(group, "gene", (), path)[:]
        self._genes = read_genes(genes, f"{group.name}/gene", path)
        self._check_cells()
        self._ends = np.cumsum(checked_counts(self._cells["geneCount"], f"{group.name}/cell"))
        self.n_values = int(self._values.shape[0])
        self._check_ends()

    def blocks(self) -> Iterator[RowBlock]:
        """Yield the counts in blocks of cells."""
        first, n_cells = 0, self._ends.size
        while first < n_cells:
            start = int(self._ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(self._ends, start + self._most, side="right")))
            block = self._block(first, last, start)
            if block.rows.size:
                yield block
            first = last

    def genes(self) -> Genes:
        """Return the genes in the order of the file."""
        return self._genes

    def obs(self, rows: np.ndarray) -> pd.DataFrame:
        """Return a table of cells by their row numbers, with ``area`` and ``n_dnbs`` where the file has them."""
        cells = self._cells[rows.astype(np.int64)]
        fields = [name for name in cells.dtype.names or () if cells.dtype[name].kind in "iu"]
        columns = {ours: cells[name] for name, ours in _COLUMNS.items() if name in fields}
        names = [str(int(number)) for number in cells["id"].tolist()]
        return pd.DataFrame(columns, index=pd.Index(names, dtype=object))

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return the centres in the file, (n, 2)."""
        cells = self._cells[rows.astype(np.int64)]
        return np.column_stack([cells["x"], cells["y"]]).astype(np.float64)

    def facts(self) -> dict[str, Any]:
        """Return the ``offset`` of the frame on the chip in DNBs, ``resolution_nm`` and the version of the format."""
        return {"format": _WHAT, "unit": "DNB", **frame_facts(self._file, ("offsetX", "offsetY"), self._file)}

    def _block(self, first: int, last: int, start: int) -> RowBlock:
        ends = self._ends[first:last]
        with reading_file(self._path, _WHAT):
            part = self._values[start : int(ends[-1])]
        counts = checked_counts(part["count"], self._values.name)
        genes, n_genes = checked_counts(part["geneID"], f"geneID of {self._values.name}"), len(self._genes.ids)
        if genes.size and genes.max() >= n_genes:
            raise InputError(
                f"numbers of genes below {n_genes:,} in {self._values.name} of {str(self._path)!r}",
                f"{genes.max():,}",
                MAKE_AGAIN,
            )
        indptr = np.concatenate([[0], ends - start])
        matrix = sp.csr_matrix((counts, genes, indptr), shape=(ends.size, n_genes))
        matrix.sum_duplicates()
        matrix.data = checked_counts(matrix.data, f"{self._values.name}, added up by cell and gene,").astype(np.int32)
        matrix.eliminate_zeros()
        seen = np.flatnonzero(np.diff(matrix.indptr))
        return RowBlock((seen + first).astype(np.uint64), matrix[seen])

    def _check_cells(self) -> None:
        cells, where = self._cells, f"cellBin/cell of {str(self._path)!r}"
        for axis in ("x", "y"):
            checked_places(cells[axis], where)
        ids = checked_counts(cells["id"], f"id of {where}")
        if np.unique(ids).size != ids.size:
            raise InputError(
                f"every cell once in {where}",
                f"{ids.size - np.unique(ids).size:,} again",
                MAKE_AGAIN,
            )

    def _check_ends(self) -> None:
        counted = int(self._ends[-1]) if self._ends.size else 0
        if counted != self.n_values:
            raise InputError(
                f"the cells of {str(self._path)!r} to count its {self.n_values:,} values",
                f"{counted:,}",
                MAKE_AGAIN,
            )
