"""Square-bin GEF of Stereo-seq: an HDF5 file with the records of every gene in a row.

``geneExp/binN/expression`` has one record (x, y, count) per place and gene, those of a gene side by side;
``geneExp/binN/gene`` says how many records each gene has (``offset``, ``count``) and what it is called: in ``gene``, or
in ``geneID`` and ``geneName`` since SAW 8. Of N above 1 places are corners of bins, in DNBs. ``expression`` has the
attributes ``minX``, ``minY`` (where its frame lies on the chip) and ``resolution`` (nanometres between DNBs). The
dataset ``exon`` beside it (how many of the molecules are of exons) is not read: they are among ``count``.

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
from spatialpdvi.binning.hdf5 import MAKE_AGAIN, attribute, group_of, reading, table_of, texts
from spatialpdvi.binning.records import Genes, RecordBlock, checked_counts, checked_places
from spatialpdvi.errors import InputError

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
        Side of the squares that are wanted: the coarsest bins of the file that fill them are read.
    """

    def __init__(self, file: h5py.File, path: Path, *, bin_size: int) -> None:
        self._path, self._file = path, file
        with reading(path, GEF):
            self.stored = _stored_bin(file["geneExp"], path, bin_size)
            bins = f"bin{self.stored}"
            group = group_of(file["geneExp"], bins, path, called=f"/geneExp/{bins}")
            self._expression = table_of(group, "expression", ("x", "y", "count"), path)
            table = table_of(group, "gene", ("count",), path)[:]
        self._genes = read_genes(table, f"{group.name}/gene", path)
        self._ends = np.cumsum(checked_counts(table["count"], f"{group.name}/gene"))
        self._check_ends()

    def blocks(self, size: int) -> Iterator[RecordBlock]:
        """Blocks of ``size`` records."""
        for start in range(0, self._expression.shape[0], size):
            with reading(self._path, GEF):
                part = self._expression[start : start + size]
            count = checked_counts(part["count"], self._expression.name)
            x, y = (self._corners(part[axis]) for axis in ("x", "y"))
            gene = np.searchsorted(self._ends, np.arange(start, start + count.size), side="right")
            seen = np.flatnonzero(count)
            yield RecordBlock(x[seen], y[seen], gene[seen], count[seen], None)

    def genes(self) -> Genes:
        """Genes in the order of the file."""
        return self._genes

    def facts(self) -> dict[str, Any]:
        """``offset`` of the frame on the chip in DNBs, ``resolution_nm``, and the version of the format."""
        found: dict[str, Any] = {"format": "GEF"}
        offset = [attribute(self._expression, name) for name in ("minX", "minY")]
        if None not in offset:
            found["offset"] = np.array(offset, dtype=np.int64)
        resolution, version = attribute(self._expression, "resolution"), attribute(self._file, "version")
        found |= {"resolution_nm": resolution} if resolution else {}
        return found | ({"format_version": version} if version is not None else {})

    def _check_ends(self) -> None:
        n_records, counted = self._expression.shape[0], int(self._ends[-1]) if self._ends.size else 0
        if not n_records:
            msg = f"Expected {self._expression.name} of {str(self._path)!r} to have records, found none. {MAKE_AGAIN}"
            raise InputError(msg)
        if counted != n_records:
            msg = (
                f"Expected the genes of {str(self._path)!r} to count its {n_records:,} records, found {counted:,}. "
                f"{MAKE_AGAIN}"
            )
            raise InputError(msg)

    def _corners(self, values: np.ndarray) -> np.ndarray:
        values = checked_places(values, self._expression.name)
        strange = values % self.stored != 0
        if strange.any():
            msg = (
                f"Expected places in {self._expression.name} of {str(self._path)!r} to be multiples of {self.stored}, "
                f"found {values[np.argmax(strange)]}. {MAKE_AGAIN}"
            )
            raise InputError(msg)
        return values


def read_genes(table: np.ndarray, where: str, path: Path) -> Genes:
    """IDs and names of a GEF's genes; where it has one of the two, that is both."""
    fields = table.dtype.names or ()
    names = next((name for name in ("geneName", "gene", "geneID") if name in fields), None)
    ids = next((name for name in ("geneID", "gene", "geneName") if name in fields), None)
    if names is None or ids is None:
        found = ", ".join(fields) or "none"
        msg = f"Expected {where} of {str(path)!r} to have gene, geneID or geneName, found fields: {found}. {MAKE_AGAIN}"
        raise InputError(msg)
    if table.size > LARGEST_GENE:
        msg = f"Expected at most {LARGEST_GENE:,} genes in {where} of {str(path)!r}, found {table.size:,}. {MAKE_AGAIN}"
        raise InputError(msg)
    found_ids, found_names = texts(table[ids]), texts(table[names])
    return Genes(found_ids, [name or gene for name, gene in zip(found_names, found_ids, strict=True)])


def _stored_bin(group: Any, path: Path, bin_size: int) -> int:
    names = [re.fullmatch(r"bin([1-9]\d*)", name) for name in (group if isinstance(group, h5py.Group) else ())]
    sizes = sorted(int(name[1]) for name in names if name)
    fitting = [size for size in sizes if bin_size % size == 0]
    if fitting:
        return fitting[-1]
    if not sizes:
        msg = f"Expected groups bin1, bin50, ... in geneExp of {str(path)!r}, found none. {MAKE_AGAIN}"
        raise InputError(msg)
    listed = ", ".join(map(str, sizes))
    msg = (
        f"Expected --bin to be a multiple of a bin size that {str(path)!r} has ({listed}), found {bin_size}. "
        "Give one of these or a multiple."
    )
    raise InputError(msg)
