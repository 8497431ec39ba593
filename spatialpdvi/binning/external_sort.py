"""Add up counts by row and gene from records in any order, in bounded memory: an external merge sort.

Records are sorted and added up block by block. When the sorted runs become too large for memory, they are written to
disk. At the end all runs are merged range by range of rows, so that the memory depends neither on the number of records
nor on that of the results (Knuth, The Art of Computer Programming 3, section 5.4).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from spatialpdvi.errors import InputError, option

__all__ = ["LARGEST_GENE", "LARGEST_ROW", "RowBlock", "Runs", "records_within"]

_GENE_BITS = 18
LARGEST_GENE = (1 << _GENE_BITS) - 1  # the largest number of a gene
LARGEST_ROW = (1 << (64 - _GENE_BITS)) - 1
_GENE = np.uint64(LARGEST_GENE)
_SHIFT = np.uint64(_GENE_BITS)
_LARGEST = np.iinfo(np.int32).max
_RECORD_BYTES = 64  # of a record in memory while runs are merged: itself, its place in the order, sums
_FEWEST = 1 << 16  # records that are in memory in any case


class RowBlock(NamedTuple):
    """Some rows of the result."""

    rows: np.ndarray  # (n,) uint64, rising, over all blocks too
    counts: sp.csr_matrix  # (n, genes) int32, canonical


class _Run(NamedTuple):
    keys: np.ndarray  # (m,) uint64, rising: row in the high bits, gene in the low ones
    counts: np.ndarray  # (m,) int32


def records_within(memory: int) -> int:
    """Return how many records `Runs` may hold in ``memory`` bytes."""
    return max(_FEWEST, memory // _RECORD_BYTES)


class Runs:
    """Counts by row and gene.

    Parameters
    ----------
    folder
        Where runs are written that memory cannot hold; the caller removes it.
    most
        The largest number of records in memory.
    """

    def __init__(self, folder: Path, *, most: int) -> None:
        self._folder, self._most = folder, most
        self._in_memory: list[_Run] = []
        self._files: list[Path] = []
        self.n_records = 0  # of all runs: the result has no more values

    def add(self, rows: np.ndarray, genes: np.ndarray, counts: np.ndarray) -> None:
        """Add records: rows (m,) uint64 up to `LARGEST_ROW`, genes (m,), counts (m,) up to 2^31 - 1."""
        run = _added_up((rows << _SHIFT) | genes.astype(np.uint64), counts.astype(np.int32))
        self._in_memory.append(run)
        self.n_records += run.keys.size
        if sum(run.keys.size for run in self._in_memory) > self._most:
            self._gather()

    def blocks(self, n_genes: int) -> Iterator[RowBlock]:
        """Yield the result in blocks of rows; call it once, after the last `add`."""
        sources = [_Source(run=run) for run in self._in_memory] + [_Source(path=path) for path in self._files]
        self._in_memory.clear()
        for run in _merge(sources, max(1, self._most // 8)):
            yield _rows(run, n_genes)

    def _gather(self) -> None:
        self.n_records -= sum(run.keys.size for run in self._in_memory)
        run = _joined(self._in_memory)
        self.n_records += run.keys.size
        self._in_memory = [run]
        if run.keys.size > self._most // 2:
            path = self._folder / f"run{len(self._files)}"
            for part, values in run._asdict().items():
                with _part(path, part).open("wb") as file:
                    file.write(memoryview(values).cast("B"))
            self._files.append(path)
            self._in_memory.clear()


class _Source:
    """A sorted run in memory or on disk, read from its first record to its last."""

    def __init__(self, *, run: _Run | None = None, path: Path | None = None) -> None:
        self.run = _Run(np.empty(0, np.uint64), np.empty(0, np.int32)) if run is None else run
        self._path, self._read = path, 0
        self.at_end = path is None

    def fill(self, n: int) -> None:
        """Load ``n`` records into ``run``, or all that are left."""
        wanted = n - self.run.keys.size
        if self.at_end or wanted <= 0 or self._path is None:
            return
        read = _Run(
            *(
                np.fromfile(_part(self._path, part), kind, wanted, offset=self._read * np.dtype(kind).itemsize)
                for part, kind in (("keys", np.uint64), ("counts", np.int32))
            )
        )
        self._read += read.keys.size
        self.at_end = read.keys.size < wanted
        self.run = _Run(*(np.concatenate(parts) for parts in zip(self.run, read, strict=True)))

    def take(self, bound: np.uint64 | None) -> _Run:
        """Remove the records below a key, or all for None, from ``run`` and return them."""
        n = self.run.keys.size if bound is None else int(np.searchsorted(self.run.keys, bound))
        taken, self.run = _Run(*(part[:n] for part in self.run)), _Run(*(part[n:] for part in self.run))
        return taken


def _merge(sources: list[_Source], size: int) -> Iterator[_Run]:
    """Yield whole rows of all sources, about ``size`` records at once."""
    share = max(1, size // max(1, len(sources)))
    while sources:
        for source in sources:
            source.fill(share)
        # a share of each source, and no more than is loaded; the row in which a share ends has to wait
        longer = [source.run.keys for source in sources if source.run.keys.size > share or not source.at_end]
        bound = min((keys[share - 1] for keys in longer), default=None)
        if bound is not None:
            bound = (bound >> _SHIFT) << _SHIFT
        parts = [part for source in sources if (part := source.take(bound)).keys.size]
        if parts:
            yield _joined(parts)
        else:
            share *= 2  # not a single whole row is loaded
        sources = [source for source in sources if source.run.keys.size or not source.at_end]


def _joined(runs: list[_Run]) -> _Run:
    """Join several runs into one, and remove them from the list."""
    if len(runs) == 1:
        return runs.pop()
    keys = np.concatenate([run.keys for run in runs])
    counts = np.concatenate([run.counts for run in runs])
    runs.clear()
    return _added_up(keys, counts)


def _added_up(keys: np.ndarray, counts: np.ndarray) -> _Run:
    """Make a run of records; both arrays are overwritten, which saves a copy."""
    order = np.argsort(keys)
    keys[:] = keys[order]
    counts[:] = counts[order]
    del order
    differs = np.ones(keys.size, dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=differs[1:])
    first = np.flatnonzero(differs)
    if first.size == keys.size:
        return _Run(keys, counts)
    sums = np.add.reduceat(counts, first, dtype=np.int64)
    if sums.max() > _LARGEST:
        raise InputError(
            f"at most {_LARGEST:,} molecules of a gene in a spot",
            f"{sums.max():,}",
            f"Use a smaller {option('bin_size')}, or check the counts.",
        )
    return _Run(keys[first], sums.astype(np.int32))


def _rows(run: _Run, n_genes: int) -> RowBlock:
    rows = run.keys >> _SHIFT
    first = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
    indptr = np.append(first, rows.size)
    genes = (run.keys & _GENE).astype(np.int32)
    return RowBlock(rows[first], sp.csr_matrix((run.counts, genes, indptr), shape=(first.size, n_genes)))


def _part(path: Path, part: str) -> Path:
    return path.with_suffix(f".{part}")
