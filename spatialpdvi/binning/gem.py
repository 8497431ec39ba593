r"""GEM of Stereo-seq: a text file with one record per line, plain or compressed by gzip.

Lines that begin with ``#`` come first (``#OffsetX=7176``: where the frame of the places lies on the chip;
``#BinSize``), then the names of the columns, separated by tabs: ``geneID``, ``x``, ``y`` and ``MIDCount`` (also
``MIDCounts`` or ``UMICount``), and in some files ``geneName``, ``ExonCount`` (molecules that ``MIDCount`` includes, not
read) and ``CellID`` (``cell`` or ``label`` in older files; 0 is outside of all cells). Records come in any order.

The layout is that of the SAW User Manual, "Matrices" and "Expression matrix format" (v8.0,
stereotoolss-organization.gitbook.io), and what github.com/STOmics/geftools writes (geftogem.cpp).
"""

import csv
import gzip
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pandas as pd

from spatialpdvi.binning.external_sort import LARGEST_GENE
from spatialpdvi.binning.records import Genes, RecordBlock, checked_counts
from spatialpdvi.errors import InputError, option
from spatialpdvi.io.storage.damage import reading_file

__all__ = ["GemRecords"]

_COUNTS = ("MIDCount", "MIDCounts", "UMICount", "UMICounts")
_CELLS = ("CellID", "cell_id", "cell", "label")
_GENES = ("geneID", "gene", "geneName")
_LONGEST = 1 << 16  # characters of a line of the header


class GemRecords:
    """Records of a GEM, read from its first line to its last.

    Parameters
    ----------
    path
        The file; its first bytes tell whether it is compressed.
    with_cells
        Whether to read the cells.
    """

    def __init__(self, path: Path, *, with_cells: bool) -> None:
        self._path = path
        self._gene_ids: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._is_gzip = is_gzip(path)
        self._what = "gzip-compressed GEM" if self._is_gzip else "GEM"
        with reading_file(path, self._what), self._opened() as stream:
            self._comments, self._columns = self._read_header(stream)
        self._gene = self._column(_GENES, "genes (geneID)")
        self._count = self._column(_COUNTS, f"counts ({' or '.join(_COUNTS[:3])})")
        for axis in ("x", "y"):
            self._column((axis,), f"places ({axis})")
        self._cell = self._column(_CELLS, "cells (CellID)") if with_cells else None
        self._check_bin()

    def blocks(self, size: int) -> Iterator[RecordBlock]:
        """Yield blocks of ``size`` lines."""
        with reading_file(self._path, self._what), self._opened() as stream:
            self._read_header(stream)
            for table in self._tables(stream, size):
                count = checked_counts(self._numbers(table, self._count), f"{self._count} of {str(self._path)!r}")
                seen = np.flatnonzero(count)
                gene = self._numbered(table)
                x, y = (self._whole(table, axis)[seen] for axis in ("x", "y"))
                cell = None if self._cell is None else self._whole(table, self._cell)[seen]
                yield RecordBlock(x, y, gene[seen], count[seen], cell)
        if not self._gene_ids:
            raise InputError(
                f"records in {str(self._path)!r}",
                "none after its header",
                "Export it again.",
            )

    def genes(self) -> Genes:
        """Return the genes in the order of their first records."""
        ids = list(self._gene_ids)
        return Genes(ids, [self._names.get(gene) or gene for gene in ids])

    def facts(self) -> dict[str, Any]:
        """Return the ``offset`` of the frame on the chip in DNBs and the name of the ``chip``, where they are known."""
        found: dict[str, Any] = {"format": "GEM"}
        offset = [self._comments.get(name, "") for name in ("OffsetX", "OffsetY")]
        if all(re.fullmatch(r"-?\d{1,12}", value) for value in offset):
            found["offset"] = np.array(offset, dtype=np.int64)
        chip = self._comments.get("Stereo-seqChip") or self._comments.get("STOmicsChip")
        return found | ({"chip": chip.replace("\0", "")} if chip else {})

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        with self._path.open("rb") as file:
            if self._is_gzip:
                with gzip.GzipFile(fileobj=file) as stream:
                    yield cast("BinaryIO", stream)
            else:
                yield file

    def _read_header(self, stream: BinaryIO) -> tuple[dict[str, str], list[str]]:
        comments: dict[str, str] = {}
        while True:
            line = stream.readline(_LONGEST).decode("utf-8-sig", "replace").rstrip("\r\n")
            if not line.startswith("#"):
                break
            name, _, value = line.lstrip("#").partition("=")
            comments[name.strip()] = value.strip()
        columns = line.split("\t")
        if not {"x", "y"} <= set(columns) and len(columns) < 3:
            first = repr(line[:60]) if line else "nothing"
            raise InputError(
                f"{str(self._path)!r} to be a GEF, or a GEM with columns geneID, x, y and MIDCount separated by tabs",
                f"{first} where their names should be",
                "Check the path.",
            )
        return comments, columns

    def _column(self, names: tuple[str, ...], what: str) -> str:
        found = next((name for name in names if name in self._columns), None)
        if found is None:
            listed = ", ".join(self._columns[:12])
            advice = (
                f"Leave out {option('cell_bin')}, or name a file with cells."
                if names is _CELLS
                else "Rename the columns accordingly."
            )
            raise InputError(
                f"a column of {what} in {str(self._path)!r}",
                f"columns {listed}",
                advice,
            )
        return found

    def _check_bin(self) -> None:
        size = self._comments.get("BinSize", "1")
        if re.fullmatch(r"[0-9]+", size) and not re.fullmatch(r"0*1", size) and self._cell is None:
            raise InputError(
                f"{str(self._path)!r} to have records of single DNBs (BinSize 1)",
                f"BinSize {size[:20]}",
                "Export it at bin 1.",
            )

    def _tables(self, stream: BinaryIO, size: int) -> Iterator[pd.DataFrame]:
        named = {self._gene, "geneName"} & set(self._columns)
        wanted = named | {"x", "y", self._count} | ({self._cell} if self._cell else set())
        reader = pd.read_csv(
            stream,
            sep="\t",
            header=None,
            names=self._columns,
            usecols=sorted(wanted),
            dtype=dict.fromkeys(named, "category"),
            keep_default_na=False,  # there are genes called NA and nan
            na_values={name: [""] for name in wanted - named},
            chunksize=size,
            quoting=csv.QUOTE_NONE,
            index_col=False,
            low_memory=False,  # a column is of one type in the whole block
        )
        with reader:
            yield from (table for table in reader if len(table))

    def _numbers(self, table: pd.DataFrame, name: str) -> np.ndarray:
        column = table[name]
        if column.dtype.kind in "iuf" and not column.isna().any():
            return column.to_numpy()
        strange = column[pd.to_numeric(column, errors="coerce").isna()]
        strange = strange if strange.size else column  # numbers that do not fit into 64 bits
        value = "nothing" if pd.isna(strange.iloc[0]) else repr(strange.iloc[0])
        # a row of a block is a line of the file after its header
        raise InputError(
            f"numbers in column {name} of {str(self._path)!r}",
            f"{value} in record {strange.index[0] + 1:,}",
            "The file may be truncated or of another kind; export it again.",
        )

    def _whole(self, table: pd.DataFrame, name: str) -> np.ndarray:
        values = self._numbers(table, name)
        if values.dtype.kind == "f":
            strange = ~(np.isfinite(values) & (np.floor(values) == values) & (np.abs(values) < 2**53))
            if strange.any():
                raise InputError(
                    f"whole numbers in column {name} of {str(self._path)!r}",
                    f"{values[np.argmax(strange)]:.6g}",
                    "Places are in DNBs; export it again.",
                )
        return values.astype(np.int64)

    def _numbered(self, table: pd.DataFrame) -> np.ndarray:
        column = table[self._gene].cat
        # categories are in the order of their names: a block's new genes are numbered as they come
        codes = column.codes.to_numpy()
        present = pd.unique(codes)
        blank = codes < 0
        if "" in column.categories:
            blank |= codes == column.categories.get_loc("")
        if blank.any():
            raise InputError(
                f"a gene in every record of {str(self._path)!r}",
                f"none in record {table.index[np.argmax(blank)] + 1:,}",
                "The file may be truncated; export it again.",
            )
        new = np.empty(len(column.categories), dtype=np.int64)
        for code in present:
            new[code] = self._gene_ids.setdefault(str(column.categories[code]), len(self._gene_ids))
        if len(self._gene_ids) > LARGEST_GENE:
            raise InputError(
                f"at most {LARGEST_GENE:,} genes in {str(self._path)!r}",
                "more",
                f"Check that its column {self._gene} has genes.",
            )
        if self._gene != "geneName" and "geneName" in table:
            pairs = table[[self._gene, "geneName"]].drop_duplicates(self._gene)
            for gene, name in zip(pairs[self._gene].astype(str), pairs["geneName"].astype(str), strict=True):
                self._names.setdefault(gene, name)
        return new[codes]


def is_gzip(path: Path) -> bool:
    """Whether the file begins like one of gzip."""
    with reading_file(path, "file"), path.open("rb") as stream:
        return stream.read(2) == b"\x1f\x8b"
