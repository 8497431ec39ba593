"""Features from the counts of selected genes: normalised, transformed, scaled and clipped, in a sparse matrix.

The matrix takes eight bytes for each value. Where there is no room for it, its rows are computed from the counts each
time they are needed; both have the same bits.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from spatialpdvi.errors import InputError, option
from spatialpdvi.kernels.counts import (
    column_extremes,
    column_moments,
    count_kept,
    keep_columns,
    normalise_rows,
    scale_columns,
)
from spatialpdvi.kernels.mixture import N_CHUNKS
from spatialpdvi.runtime.rows import CountRows, Rows, SpreadRows, row_blocks, row_sums
from spatialpdvi.runtime.threads import single_threaded

__all__ = [
    "ColumnMoments",
    "NormalisedRows",
    "ScaledGenes",
    "ScaledRows",
    "is_constant",
    "normalised_genes",
    "pearson_residuals",
    "scaled_genes",
    "take_genes",
]

_TRANSFORMS = {"none": 0, "log1p": 1, "sqrt": 2}


class ScaledGenes(NamedTuple):
    """Scaled expression, and what another section needs to be scaled in the same way."""

    values: "sp.csr_matrix | ScaledRows"  # (n, g) float32
    genes: np.ndarray  # (g,) columns of the counts, ascending
    sd: np.ndarray  # (g,) of the normalised and transformed values


def take_genes(counts: CountRows, genes: np.ndarray, n_values: int = 0) -> sp.csr_matrix:
    """Return columns of counts as float32 CSR, read in one pass.

    Parameters
    ----------
    counts
        (n, genes).
    genes
        (g,) columns to take, ascending.
    n_values
        How many stored values the columns have, where that is known; they are then copied once only. There may be
        more, since zeros may be stored.

    Returns
    -------
    (n, g)
    """
    if isinstance(counts, sp.csr_matrix):
        data, indices, lengths = _kept(counts, genes)
        return _matrix(data, indices, [lengths], counts.shape[0], genes.size)
    if isinstance(counts, SpreadRows):
        parts = [part for parts in counts.by_part(_all_kept, genes) for part in parts]
        n_values = sum(values.size for values, _, _ in parts)
        parts.reverse()
        blocks = (parts.pop() for _ in range(len(parts)))  # each is freed once it is copied
    else:
        blocks = (_kept(block, genes) for block in row_blocks(counts))
    data, indices = np.empty(n_values, dtype=np.float32), np.empty(n_values, dtype=np.int32)
    done, all_lengths = 0, []
    for values, columns, lengths in blocks:
        end = done + values.size
        if end > data.size:
            data, indices = (_longer(array, max(end, data.size + data.size // 2)) for array in (data, indices))
        data[done:end], indices[done:end] = values, columns
        all_lengths.append(lengths)
        done = end
    return _matrix(data[:done], indices[:done], all_lengths, counts.shape[0], genes.size)


def _all_kept(counts: CountRows, genes: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    return [_kept(block, genes) for block in row_blocks(counts)]


def _kept(block: sp.csr_matrix, genes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values (m,) float32 and columns (m,) of the entries that are kept, and their number (n,) in each row."""
    column = np.full(block.shape[1], -1, dtype=np.int32)
    column[genes] = np.arange(genes.size)
    lengths = np.empty(block.shape[0], dtype=np.int64)
    count_kept(block.indices, block.indptr, column, lengths)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    data, indices = np.empty(starts[-1], dtype=np.float32), np.empty(starts[-1], dtype=np.int32)
    keep_columns(block.data, block.indices, block.indptr, column, starts, data, indices)
    return data, indices, lengths


def _longer(array: np.ndarray, size: int) -> np.ndarray:
    longer = np.empty(size, dtype=array.dtype)
    longer[: array.size] = array
    return longer


def _matrix(
    data: np.ndarray, indices: np.ndarray, lengths: list[np.ndarray], n_rows: int, n_columns: int
) -> sp.csr_matrix:
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)
    return sp.csr_matrix((data, indices, indptr), shape=(n_rows, n_columns))


def normalised_genes(
    taken: sp.csr_matrix, totals: np.ndarray, *, target_sum: float, transform: str, in_place: bool = False
) -> sp.csr_matrix:
    """Return normalised and transformed values (n, g), float32 CSR.

    Parameters
    ----------
    taken
        Counts of some genes (n, g).
    totals
        (n,) sums of all counts of each spot, other genes included. A spot without counts stays 0.
    target_sum
        Total counts of a spot after normalisation.
    transform
        Of the normalised values: "none", "log1p" or "sqrt".
    in_place
        Whether the values replace the counts of ``taken``, which must be float32.
    """
    factor = np.divide(target_sum, totals, out=np.zeros(totals.size), where=totals > 0)
    values = taken.data if in_place else np.empty(taken.data.size, dtype=np.float32)
    normalise_rows(taken.data, taken.indptr, factor, _TRANSFORMS[transform], values)
    return sp.csr_matrix((values, taken.indices, taken.indptr), shape=taken.shape)


class NormalisedRows:
    """Normalised and transformed counts of selected genes, computed each time they are read.

    Parameters
    ----------
    counts
        (n, genes), not in memory.
    genes
        (g,) columns to take, ascending.
    totals
        (n,) counts of each spot before normalisation; None for those of the selected genes.
    target_sum, transform
        As for `normalised_genes`.
    """

    def __init__(
        self, counts: Rows, genes: np.ndarray, totals: np.ndarray | None, *, target_sum: float, transform: str
    ) -> None:
        self._counts, self._genes, self._totals = counts, genes, totals
        self._target_sum, self._transform = target_sum, transform
        self.shape = (counts.shape[0], genes.size)

    def blocks(self) -> Iterator[sp.csr_matrix]:
        """Yield the blocks in the order of the rows; each may be changed."""
        done = 0
        for block in row_blocks(self._counts):
            taken = take_genes(block, self._genes)
            totals = row_sums(taken) if self._totals is None else self._totals[done : done + block.shape[0]]
            yield normalised_genes(taken, totals, target_sum=self._target_sum, transform=self._transform, in_place=True)
            done += block.shape[0]


class ScaledRows:
    """Normalised counts of selected genes, scaled and clipped each time they are read.

    Parameters
    ----------
    normalised
        (n, genes).
    columns
        (g,) of the genes to take, ascending.
    sd
        (genes,) to divide by.
    clip
        Largest value after division.
    """

    def __init__(self, normalised: NormalisedRows, columns: np.ndarray, sd: np.ndarray, clip: float) -> None:
        self._normalised, self._columns, self._factor, self._clip = normalised, columns, 1.0 / sd, clip
        self.shape = (normalised.shape[0], columns.size)

    def blocks(self) -> Iterator[sp.csr_matrix]:
        """Yield the blocks in the order of the rows."""
        for block in self._normalised.blocks():
            scale_columns(block.data, block.indices, self._factor, self._clip)
            yield block if self._columns.size == block.shape[1] else take_genes(block, self._columns)


def scaled_genes(normalised: sp.csr_matrix | NormalisedRows, genes: np.ndarray, *, clip: float) -> ScaledGenes:
    """Return scaled (not centred) and clipped values (n, g) of selected genes.

    Genes that every spot expresses above the clip are constant after clipping. They cannot separate domains and are
    left out.

    Parameters
    ----------
    normalised
        Values of `normalised_genes`. The scaled ones replace those of a matrix, because a large section has no room for
        both.
    genes
        (g,) columns of the counts that they are of.
    clip
        Largest value, in standard deviations.
    """
    moments, extremes = ColumnMoments(*normalised.shape), _Extremes(normalised.shape[1])
    for block in row_blocks(normalised):
        moments.add(block)
        extremes.add(block)
    sd = moments.sd()
    sd[sd == 0.0] = 1.0
    # scaling and clipping keep the order of values, so that they need not be computed to find their extremes
    vary = np.flatnonzero(
        ~extremes.are_equal(normalised.shape[0], lambda x: np.minimum(x * (1.0 / sd), clip).astype(np.float32))
    )
    if isinstance(normalised, NormalisedRows):
        return ScaledGenes(ScaledRows(normalised, vary, sd, clip), genes[vary], sd[vary])
    scale_columns(normalised.data, normalised.indices, 1.0 / sd, clip)
    if vary.size < genes.size:
        normalised = take_genes(normalised, vary)
    return ScaledGenes(normalised, genes[vary], sd[vary])


class ColumnMoments:
    """Mean and standard deviation of each column, zeros included, from blocks of rows in their order.

    Sums have the same bits for any blocks.

    Parameters
    ----------
    n, g
        Numbers of all rows and of columns.
    """

    def __init__(self, n: int, g: int) -> None:
        self._n, self._done = n, 0
        self._sums, self._squares = np.zeros((N_CHUNKS, g)), np.zeros((N_CHUNKS, g))

    def add(self, block: sp.csr_matrix) -> None:
        """Add the next rows."""
        column_moments(block.data, block.indices, block.indptr, self._done, self._n, self._sums, self._squares)
        self._done += block.shape[0]

    def mean(self) -> np.ndarray:
        """Return the means (g,) float64."""
        return np.asarray(self._sums.sum(axis=0) / self._n)

    def sd(self) -> np.ndarray:
        """Return the standard deviations (g,) float64, with n - 1."""
        variance = np.maximum(self._squares.sum(axis=0) / self._n - self.mean() ** 2, 0.0)
        return np.asarray(np.sqrt(variance * (self._n / max(1, self._n - 1))))


class _Extremes:
    """Smallest and largest stored value of each column, from blocks of rows."""

    def __init__(self, g: int) -> None:
        shape = (N_CHUNKS, g)
        self._least, self._most = np.full(shape, np.inf), np.full(shape, -np.inf)
        self._present = np.zeros(shape, dtype=np.int64)

    def add(self, block: sp.csr_matrix) -> None:
        column_extremes(block.data, block.indices, block.indptr, self._least, self._most, self._present)

    def are_equal(self, n: int, change: Callable[[np.ndarray], np.ndarray] = np.asarray) -> np.ndarray:
        """Whether each column (g,) has one value in n rows, once ``change`` is applied; zeros are not stored."""
        outside = np.where(self._present.sum(axis=0) < n, 0.0, np.nan)
        least, most = np.fmin(self._least.min(axis=0), outside), np.fmax(self._most.max(axis=0), outside)
        return np.asarray(change(least) == change(most))


def pearson_residuals(counts: CountRows, genes: np.ndarray) -> np.ndarray:
    """Return analytic Pearson residuals (n, g), float32 and dense (Lause, Berens and Kobak 2021; scanpy's, theta 100).

    Residuals are already normalised and scaled. Genes without counts in any of the spots, and spots without counts in
    any of the genes, have residuals of 0.

    Raises
    ------
    InputError
        Where the counts do not fit into memory.
    """
    import anndata
    import scanpy as sc

    if not isinstance(counts, sp.csr_matrix):
        raise InputError(
            f"counts that fit into memory with {option('transform', 'pearson')}, whose residuals are dense",
            "counts that are read block by block",
            f"Choose another {option('transform')}, or raise {option('memory')}.",
        )
    chosen = counts[:, genes].astype(np.float64)
    rows = np.flatnonzero(row_sums(chosen) > 0)
    columns = np.flatnonzero(np.asarray(chosen.sum(axis=0)).ravel() > 0)
    residuals = np.zeros(chosen.shape, dtype=np.float32)
    if rows.size and columns.size:
        section = anndata.AnnData(chosen[rows][:, columns])
        with single_threaded():
            sc.experimental.pp.normalize_pearson_residuals(section)
        residuals[np.ix_(rows, columns)] = section.X
    return residuals


def is_constant(x: np.ndarray | sp.csr_matrix) -> np.ndarray:
    """Return which columns (d,) have one value for all spots."""
    if isinstance(x, np.ndarray):
        return np.asarray(x.max(axis=0) == x.min(axis=0))
    extremes = _Extremes(x.shape[1])
    extremes.add(x)
    return extremes.are_equal(x.shape[0])
