"""Square-bin GEF of Stereo-seq: an HDF5 file with records of molecules, gene by gene.

``geneExp/binN/expression`` has one record (x, y, count) per place and gene, sorted by gene. ``geneExp/binN/gene`` says
how many records each gene has (``offset``, ``count``) and its name: in ``gene``, or in ``geneID`` and ``geneName``
since SAW 8. Where N is above 1, places are corners of bins, in DNBs. ``expression`` has the attributes ``minX``,
``minY`` (where its frame lies on the chip) and ``resolution`` (nanometres between DNBs). The dataset ``exon`` beside
it, the number of molecules from exons, is not read: ``count`` includes them.

The layout is that of the SAW User Manual, "Expression matrix format" (v8.0, stereotoolss-organization.gitbook.io),
"GEF (Square Bin)" in github.com/STOmics/SAW (Documents/FileFormat), and what github.com/STOmics/geftools writes
(gef.h, bgef_writer.cpp).
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from spatialpdvi.binning.external_sort import LARGEST_GENE
from spatialpdvi.binning.hdf5 import MAKE_AGAIN, frame_facts, group_of, table_of, texts
from spatialpdvi.binning.records import Genes, RecordBlock, checked_counts, checked_places
from spatialpdvi.errors import InputError
from spatialpdvi.io.storage.damage import reading_file

__all__ = ["GEF", "GefRecords", "read_genes"]

GEF = "GEF"  # what messages call such a file


class GefRecords:
    """Records of a square-bin GEF.

    Parameters
    ----------
    file
        Open, read-only.
    path
        Its name, for messages.
    bin_size
        Side of the wanted squares in DNBs; the coarsest bins of the file that fill them are read.
    """

    def __init__(self, file: h5py.File, path: Path, *, bin_size: int) -> None:
        self._path, self._file = path, file
        with reading_file(path, GEF):
            self.stored = _stored_bin(file["geneExp"], path, bin_size)
            bins = f"bin{self.stored}"
            group = group_of(file["geneExp"], bins, path, called=f"/geneExp/{bins}")
            self._expression = table_of(group, "expression", ("x", "y", "count"), path)
            table = table_of(group, "gene", ("count",), path)[:]
        self._genes = read_genes(table, f"{group.name}/gene", path)
        self._ends = np.cumsum(checked_counts(table["count"], f"{group.name}/gene"))
        self._check_ends()

    def blocks(self, size: int) -> Iterator[RecordBlock]:
        """Yield blocks of ``size`` records."""
        for start in range(0, self._expression.shape[0], size):
            with reading_file(self._path, GEF):
                part = self._expression[start : start + size]
            count = checked_counts(part["count"], self._expression.name)
            x, y = (self._corners(part[axis]) for axis in ("x", "y"))
            gene = np.searchsorted(self._ends, np.arange(start, start + count.size), side="right")
            seen = np.flatnonzero(count)
            yield RecordBlock(x[seen], y[seen], gene[seen], count[seen], None)

    def genes(self) -> Genes:
        """Return the genes in the order of the file."""
        return self._genes

    def facts(self) -> dict[str, Any]:
        """Return the ``offset`` of the frame on the chip in DNBs, ``resolution_nm`` and the version of the format."""
        return {"format": "GEF", **frame_facts(self._expression, ("minX", "minY"), self._file)}

    def _check_ends(self) -> None:
        n_records, counted = self._expression.shape[0], int(self._ends[-1]) if self._ends.size else 0
        if not n_records:
            raise InputError(
                f"{self._expression.name} of {str(self._path)!r} to have records",
                "none",
                MAKE_AGAIN,
            )
        if counted != n_records:
            raise InputError(
                f"the genes of {str(self._path)!r} to count its {n_records:,} records",
                f"{counted:,}",
                MAKE_AGAIN,
            )

    def _corners(self, values: np.ndarray) -> np.ndarray:
        values = checked_places(values, self._expression.name)
        strange = values % self.stored != 0
        if strange.any():
            raise InputError(
                f"places in {self._expression.name} of {str(self._path)!r} to be multiples of {self.stored}",
                f"{values[np.argmax(strange)]}",
                MAKE_AGAIN,
            )
        return values


def read_genes(table: np.ndarray, where: str, path: Path) -> Genes:
    """Read the IDs and names of the genes of a GEF; where it has only one of the two, that is used for both."""
    fields = table.dtype.names or ()
    names = next((name for name in ("geneName", "gene", "geneID") if name in fields), None)
    ids = next((name for name in ("geneID", "gene", "geneName") if name in fields), None)
    if names is None or ids is None:
        found = ", ".join(fields) or "none"
        raise InputError(
            f"{where} of {str(path)!r} to have gene, geneID or geneName",
            f"fields: {found}",
            MAKE_AGAIN,
        )
    if table.size > LARGEST_GENE:
        raise InputError(
            f"at most {LARGEST_GENE:,} genes in {where} of {str(path)!r}",
            f"{table.size:,}",
            MAKE_AGAIN,
        )
    found_ids, found_names = texts(table[ids]), texts(table[names])
    return Genes(found_ids, [name or gene for name, gene in zip(found_names, found_ids, strict=True)])


def _stored_bin(group: Any, path: Path, bin_size: int) -> int:
    names = [re.fullmatch(r"bin([1-9]\d*)", name) for name in (group if isinstance(group, h5py.Group) else ())]
    sizes = sorted(int(name[1]) for name in names if name)
    fitting = [size for size in sizes if bin_size % size == 0]
    if fitting:
        return fitting[-1]
    if not sizes:
        raise InputError(
            f"groups bin1, bin50, ... in geneExp of {str(path)!r}",
            "none",
            MAKE_AGAIN,
        )
    listed = ", ".join(map(str, sizes))
    raise InputError(
        f"a multiple of a bin size that {str(path)!r} has ({listed})",
        f"{bin_size}",
        "Give one of these or a multiple.",
        option="bin_size",
    )
