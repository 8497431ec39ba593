"""Features from the counts of selected genes: normalised, transformed, scaled and clipped, in a sparse matrix."""

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
from spatialpdvi.runtime.rows import CountRows, by_part, row_blocks
from spatialpdvi.runtime.threads import single_threaded

__all__ = [
    "ScaledGenes",
    "column_mean_sd",
    "is_constant",
    "normalised_genes",
    "pearson_residuals",
    "scaled_genes",
    "take_genes",
]

_TRANSFORMS = {"none": 0, "log1p": 1, "sqrt": 2}


class ScaledGenes(NamedTuple):
    """Scaled expression, and what another section needs to be scaled in the same way."""

    values: sp.csr_matrix  # (n, g) float32
    genes: np.ndarray  # (g,) columns of the counts, ascending
    sd: np.ndarray  # (g,) of the normalised and transformed values


def take_genes(counts: CountRows, genes: np.ndarray) -> sp.csr_matrix:
    """Return the columns ``genes``, ascending, of counts (n, genes) as float32 CSR (n, g), read in one pass."""
    blocks = [block for part in by_part(counts, _take_genes, genes) for block in part]
    values, columns, lengths = (list(part) for part in zip(*blocks, strict=True))
    del blocks  # so that nothing but these lists holds the parts, which are freed as they are joined
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    data, indices = _joined(values), _joined(columns)
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)
    return sp.csr_matrix((data, indices, indptr), shape=(counts.shape[0], genes.size))


def _take_genes(counts: CountRows, genes: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Values, columns and lengths of the rows, one entry for each block."""
    column = np.full(counts.shape[1], -1, dtype=np.int32)
    column[genes] = np.arange(genes.size)
    parts = []
    for block in row_blocks(counts):
        lengths = np.empty(block.shape[0], dtype=np.int64)
        count_kept(block.indices, block.indptr, column, lengths)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        data, indices = np.empty(starts[-1], dtype=np.float32), np.empty(starts[-1], dtype=np.int32)
        keep_columns(block.data, block.indices, block.indptr, column, starts, data, indices)
        parts.append((data, indices, lengths))
    return parts


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """Arrays end to end; each is freed as soon as it is copied."""
    if len(parts) == 1:
        return parts.pop()
    whole = np.empty(sum(part.size for part in parts), dtype=parts[0].dtype)
    place = whole.size
    while parts:
        part = parts.pop()
        place -= part.size
        whole[place : place + part.size] = part
    return whole


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


def scaled_genes(
    taken: sp.csr_matrix,
    genes: np.ndarray,
    totals: np.ndarray,
    *,
    target_sum: float = 1e4,
    transform: str = "none",
    clip: float = 10.0,
) -> ScaledGenes:
    """Return normalised, transformed, scaled (not centred) and clipped values (n, g) of selected genes.

    Genes that every spot expresses above the clip are constant after clipping. They cannot separate domains and are
    left out.

    Parameters
    ----------
    taken
        Counts (n, g) from `take_genes`; the values replace them, because a large section has no room for both.
    genes
        (g,) columns that they are of.
    totals
        (n,) sums of all counts of each spot.
    target_sum, transform
        As for `normalised_genes`.
    clip
        Largest value, in standard deviations.
    """
    values = normalised_genes(taken, totals, target_sum=target_sum, transform=transform, in_place=True)
    _, sd = column_mean_sd(values)
    sd[sd == 0.0] = 1.0
    scale_columns(values.data, values.indices, 1.0 / sd, clip)
    vary = ~is_constant(values)
    if not vary.all():
        values = values[:, np.flatnonzero(vary)]
        values.sort_indices()
    return ScaledGenes(values, genes[vary], sd[vary])


def column_mean_sd(values: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation (g,) of the columns of values (n, g), zeros included; the sd with n - 1."""
    n, g = values.shape
    sums, squares = np.empty((N_CHUNKS, g)), np.empty((N_CHUNKS, g))
    column_moments(values.data, values.indices, values.indptr, sums, squares)
    mean = sums.sum(axis=0) / n
    variance = np.maximum(squares.sum(axis=0) / n - mean**2, 0.0) * (n / max(1, n - 1))
    return mean, np.sqrt(variance)


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
    rows = np.flatnonzero(np.asarray(chosen.sum(axis=1)).ravel() > 0)
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
    shape = (N_CHUNKS, x.shape[1])
    least, most, present = np.empty(shape), np.empty(shape), np.empty(shape, dtype=np.int64)
    column_extremes(x.data, x.indices, x.indptr, least, most, present)
    outside = np.where(present.sum(axis=0) < x.shape[0], 0.0, np.nan)  # zeros are not stored
    return np.asarray(np.fmin(least.min(axis=0), outside) == np.fmax(most.max(axis=0), outside))
