"""What one pass over the counts tells: each spot's total, and how often each gene has each count."""

from typing import NamedTuple

import numpy as np

from spatialpdvi.kernels.counts import SLOTS, VALUES, tally_values
from spatialpdvi.runtime.rows import CountRows, by_part, row_blocks

__all__ = ["Tally", "tally"]


class Tally(NamedTuple):
    """Counts of a section, gene by gene; whole numbers alone, so no order of adding them matters."""

    totals: np.ndarray  # (n,) float64 counts of each spot
    histogram: np.ndarray  # (genes, VALUES) int64 spots in which a gene has each count; 0 is not tallied
    large_genes: np.ndarray  # (m,) int64 genes of the counts of `VALUES` and above
    large_values: np.ndarray  # (m,) float64

    @property
    def n_spots(self) -> int:
        """Number of spots."""
        return int(self.totals.size)

    def spots(self) -> np.ndarray:
        """Spots (genes,) in which a gene has counts at all."""
        own = self.histogram.sum(axis=1)
        return np.asarray(own + np.bincount(self.large_genes, minlength=own.size))

    def clipped_sums(self, limit: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Sums (genes,) of the counts and of their squares, counts above each gene's ``limit`` taken as that."""
        genes = self.histogram.shape[0]
        value = np.arange(VALUES, dtype=np.float64)
        large = self.large_values
        if limit is None:
            total, squares = self.histogram @ value, self.histogram @ value**2
        else:
            capped = np.minimum(value, limit[:, None])
            total = (self.histogram * capped).sum(axis=1)
            squares = (self.histogram * capped**2).sum(axis=1)
            large = np.minimum(large, limit[self.large_genes])
        total = total + np.bincount(self.large_genes, weights=large, minlength=genes)
        return total, squares + np.bincount(self.large_genes, weights=large**2, minlength=genes)


def tally(counts: CountRows) -> Tally:
    """One pass over counts (n, genes), whole numbers >= 0."""
    parts = by_part(counts, _tally)
    if len(parts) == 1:
        return parts[0]
    totals, histograms, genes, values = zip(*parts, strict=True)
    return Tally(np.concatenate(totals), np.sum(histograms, axis=0), np.concatenate(genes), np.concatenate(values))


def _tally(counts: CountRows) -> Tally:
    n, genes = counts.shape
    histogram = np.zeros((SLOTS, genes, VALUES), dtype=np.int32)
    totals = np.empty(n)
    large_genes, large_values = [np.empty(0, dtype=np.int64)], [np.empty(0)]
    done = 0
    for block in row_blocks(counts):
        tally_values(block.data, block.indices, block.indptr, histogram, totals[done : done + block.shape[0]])
        large = np.flatnonzero(block.data >= VALUES)
        large_genes.append(block.indices[large].astype(np.int64))
        large_values.append(block.data[large].astype(np.float64))
        done += block.shape[0]
    total = histogram[0].astype(np.int64)
    for slot in histogram[1:]:
        total += slot
    return Tally(totals, total, np.concatenate(large_genes), np.concatenate(large_values))
