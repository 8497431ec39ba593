"""Genes that vary more than their mean explains: scanpy's `seurat_v3` (Stuart et al. 2019) from a tally of the counts.

One pass over the counts makes the tally. The genes selected from it are the same whether the counts are in memory or
are read block by block.
"""

import logging
import warnings
from typing import NamedTuple

import numpy as np

from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.kernels.counts import SLOTS, VALUES, tally_values
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.runtime.rows import CountRows, by_part, row_blocks

__all__ = ["Tally", "select_genes", "tally"]

_log = logging.getLogger("spatialpdvi")


class Tally(NamedTuple):
    """How often each gene has each count, and each spot's total; all whole numbers, so that sums have no order."""

    totals: np.ndarray  # (n,) float64 counts of each spot
    histogram: np.ndarray  # (genes, VALUES) int64 spots in which a gene has each count; 0 is not tallied
    large_genes: np.ndarray  # (m,) int64 genes of the counts of `VALUES` and above
    large_values: np.ndarray  # (m,) float64

    @property
    def n_spots(self) -> int:
        """Number of spots."""
        return int(self.totals.size)

    def spots(self) -> np.ndarray:
        """Return the number of spots (genes,) in which each gene has counts."""
        own = self.histogram.sum(axis=1)
        return np.asarray(own + np.bincount(self.large_genes, minlength=own.size))

    def clipped_sums(self, limit: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return sums (genes,) of the counts and of their squares; counts above ``limit`` (genes,) are set to it."""
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
    """Tally counts (n, genes), whole numbers >= 0, in one pass."""
    parts = by_part(counts, _tally)
    if len(parts) == 1:
        return parts[0]
    totals, histograms, genes, values = zip(*parts, strict=True)
    return Tally(np.concatenate(totals), np.sum(histograms, axis=0), np.concatenate(genes), np.concatenate(values))


def select_genes(counts: Tally, n_top_genes: int) -> np.ndarray:
    """Return the columns, ascending, of the ``n_top_genes`` most variable genes.

    Genes without counts are never selected. Where at most ``n_top_genes`` have counts, all of these are selected. The
    loess of the variance trend needs enough genes in each window: where its default span of 0.3 is singular, the span
    is widened and the log says so.

    Raises
    ------
    InputError
        Where no gene has counts, no gene varies, or no trend can be fitted.
    """
    n_genes = counts.histogram.shape[0]
    expressed = np.flatnonzero(counts.spots())
    if expressed.size == 0:
        raise InputError("at least one gene with counts", "only zeros", f"Check {option('layer')}.")
    if expressed.size <= n_top_genes:
        if n_genes < n_top_genes != FitOptions.n_top_genes:  # a default that is too large needs no warning
            text = f"The section has {n_genes} genes, fewer than {option('n_top_genes', n_top_genes)}; all are used."
            warnings.warn(InputWarning(text), stacklevel=2)
        return expressed
    moments = _moments(counts, expressed)
    n_vary = int((moments[1] > 0).sum())
    if n_vary == 0:
        raise InputError(
            "genes whose counts differ between spots",
            f"{expressed.size:,} genes that each have the same count everywhere",
            f"Check {option('layer')}.",
        )
    for span in (0.3, 0.5, 0.8, 1.0):
        if int(span * n_vary) < 1:  # the Fortran loess crashes where a window has no gene
            continue
        try:
            variance = _standardised_variance(counts, expressed, moments, span=span)
        except ValueError:  # raised by the Fortran loess where a fit is singular
            _log.info("The variance trend of the genes is singular at span %s; the span is widened.", span)
            continue
        return expressed[np.sort(np.argsort(-variance, kind="stable")[:n_top_genes])]
    raise InputError(
        "genes whose variance follows their mean",
        f"{expressed.size} genes over {counts.n_spots} spots to which no trend can be fitted",
        f"Keep all genes with {option('n_top_genes', n_genes)}.",
    )


def _tally(counts: CountRows) -> Tally:
    n, genes = counts.shape
    histogram = np.zeros((SLOTS, VALUES, genes), dtype=np.int32)
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
    return Tally(totals, np.ascontiguousarray(total.T), np.concatenate(large_genes), np.concatenate(large_values))


def _moments(counts: Tally, genes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (genes,) of the counts."""
    n = counts.n_spots
    total, squares = (sums[genes] for sums in counts.clipped_sums())
    mean = total / n
    return mean, (squares / n - mean**2) * (n / max(1, n - 1))


def _standardised_variance(
    counts: Tally, genes: np.ndarray, moments: tuple[np.ndarray, np.ndarray], *, span: float
) -> np.ndarray:
    """Variance of each gene's counts in units of the sd that its mean predicts, counts beyond sqrt(n) sd clipped."""
    from skmisc.loess import loess

    n = counts.n_spots
    mean, variance = moments
    vary = variance > 0
    trend = loess(np.log10(mean[vary]), np.log10(variance[vary]), span=span, degree=2)
    trend.fit()
    expected = np.zeros(genes.size)
    expected[vary] = trend.outputs.fitted_values
    sd = np.sqrt(10**expected)
    limit = np.full(counts.histogram.shape[0], np.inf)
    limit[genes] = sd * np.sqrt(n) + mean
    total, squares = (sums[genes] for sums in counts.clipped_sums(limit))
    return np.asarray((n * mean**2 + squares - 2.0 * total * mean) / ((n - 1) * sd**2))
