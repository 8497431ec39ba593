"""Which genes vary more than their mean explains: scanpy's `seurat_v3` from a tally of the counts (Stuart et al. 2019).

From the tally rather than the matrix, the same genes come out whether counts are in memory or read block by block.
"""

import logging
import warnings

import numpy as np

from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.features.tally import Tally

__all__ = ["select_genes"]

_log = logging.getLogger("spatialpdvi")


def select_genes(counts: Tally, n_top_genes: int) -> np.ndarray:
    """Columns, ascending, of the ``n_top_genes`` highly variable genes.

    Genes that no spot expresses are never chosen. Where fewer than ``n_top_genes`` are expressed, all of them are.
    The loess of the variance trend needs enough genes in each window: its span is widened, with a log line, where
    the default of 0.3 is singular.
    """
    n_genes = counts.histogram.shape[0]
    expressed = np.flatnonzero(counts.spots())
    if expressed.size == 0:
        msg = "Expected at least one gene with counts, found only zeros. Check --layer."
        raise InputError(msg)
    if expressed.size <= n_top_genes:
        if n_genes < n_top_genes:
            msg = f"Expected at least --n-top-genes {n_top_genes} genes, found {n_genes}; all are used."
            warnings.warn(msg, InputWarning, stacklevel=2)
        return expressed
    moments = _moments(counts, expressed)
    n_vary = int((moments[1] > 0).sum())
    if n_vary == 0:
        msg = (
            f"Expected genes whose counts differ between spots, found {expressed.size:,} genes that each have the same "
            "count everywhere. Check --layer."
        )
        raise InputError(msg)
    for span in (0.3, 0.5, 0.8, 1.0):
        if int(span * n_vary) < 1:  # the Fortran loess crashes where a window has no gene
            continue
        try:
            variance = _standardised_variance(counts, expressed, moments, span=span)
        except ValueError as error:  # the Fortran loess reports a singular fit so
            _log.info("variance trend of the genes is singular at span %s (%s); widened", span, error)
            continue
        return expressed[np.sort(np.argsort(-variance, kind="stable")[:n_top_genes])]
    msg = (
        f"Expected genes whose variance follows their mean, found {expressed.size} genes over {counts.n_spots} spots "
        f"for which no trend can be fitted. Keep all genes with --n-top-genes {n_genes}."
    )
    raise InputError(msg)


def _moments(counts: Tally, genes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (genes,) of the counts."""
    n = counts.n_spots
    total, squares = (sums[genes] for sums in counts.clipped_sums())
    mean = total / n
    return mean, (squares / n - mean**2) * (n / max(1, n - 1))


def _standardised_variance(
    counts: Tally, genes: np.ndarray, moments: tuple[np.ndarray, np.ndarray], *, span: float
) -> np.ndarray:
    """Variance of each gene's counts in units of the sd that its mean lets expect, counts beyond sqrt(n) sd clipped."""
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
