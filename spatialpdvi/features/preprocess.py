"""Counts to features, step by step through scanpy: HVG, normalise, transform, scale, PCA. Sparse until the PCA."""

import logging
import warnings
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning

__all__ = [
    "ScaledGenes",
    "normalised_genes",
    "pearson_residuals",
    "principal_components",
    "scaled_genes",
    "select_genes",
]

_log = logging.getLogger("spatialpdvi")


class ScaledGenes(NamedTuple):
    """Scaled expression, and what another section needs to be scaled alike."""

    values: sp.csr_matrix  # (n, g) float32
    genes: np.ndarray  # (g,) columns of the counts, ascending
    sd: np.ndarray  # (g,) of the normalised and transformed values


def select_genes(counts: sp.csr_matrix, n_top_genes: int) -> np.ndarray:
    """Columns, ascending, of the ``n_top_genes`` highly variable genes by scanpy's `seurat_v3`.

    Genes that no spot expresses are never chosen. Where fewer than ``n_top_genes`` are expressed, all of them are.
    The loess of the variance trend needs enough genes in each window: its span is widened, with a log line, where
    the default of 0.3 is singular.
    """
    import anndata
    import scanpy as sc

    expressed = np.flatnonzero(np.asarray((counts > 0).sum(axis=0)).ravel())
    if expressed.size == 0:
        msg = "Expected at least one gene with counts, found only zeros. Check --layer."
        raise InputError(msg)
    if expressed.size <= n_top_genes:
        if counts.shape[1] < n_top_genes:
            msg = f"Expected at least --n-top-genes {n_top_genes} genes, found {counts.shape[1]}; all are used."
            warnings.warn(msg, InputWarning, stacklevel=2)
        return expressed
    section = anndata.AnnData(counts[:, expressed])
    for span in (0.3, 0.5, 0.8, 1.0):
        try:
            table = sc.pp.highly_variable_genes(
                section, flavor="seurat_v3", n_top_genes=n_top_genes, span=span, inplace=False
            )
        except ValueError as error:  # the Fortran loess reports a singular fit so
            _log.info("variance trend of the genes is singular at span %s (%s); widened", span, error)
            continue
        return expressed[np.flatnonzero(table["highly_variable"].to_numpy())]
    msg = (
        f"Expected genes whose variance follows their mean, found {expressed.size} genes over {counts.shape[0]} spots "
        f"for which no trend can be fitted. Keep all genes with --n-top-genes {counts.shape[1]}."
    )
    raise InputError(msg)


def scaled_genes(
    counts: sp.csr_matrix, genes: np.ndarray, *, target_sum: float = 1e4, transform: str = "none", clip: float = 10.0
) -> ScaledGenes:
    """Normalised, transformed, scaled (not centred) and clipped values (n, n_genes).

    Genes that every spot expresses above the clip are constant then and are left out: they tell no domain from another.
    """
    import anndata
    import scanpy as sc

    section = anndata.AnnData(normalised_genes(counts, genes, target_sum=target_sum, transform=transform))
    sc.pp.scale(section, zero_center=False, max_value=clip)
    scaled = sp.csr_matrix(section.X, dtype=np.float32)
    vary = np.flatnonzero(~is_constant(scaled))
    scaled = scaled[:, vary]
    scaled.sort_indices()
    return ScaledGenes(scaled, genes[vary], section.var["std"].to_numpy(dtype=np.float64)[vary])


def normalised_genes(counts: sp.csr_matrix, genes: np.ndarray, *, target_sum: float, transform: str) -> sp.csr_matrix:
    """Normalised and transformed values (n, n_genes), float32 CSR.

    Spots are normalised by all their counts, before genes are taken out. A spot without counts stays zero.

    Parameters
    ----------
    transform
        Of the normalised values: "none", "log1p" or "sqrt".
    """
    import anndata
    import scanpy as sc

    section = anndata.AnnData(counts.astype(np.float32))
    with warnings.catch_warnings():
        # spots without counts were reported, with their number, when the file was read
        warnings.filterwarnings("ignore", message="Some cells have zero counts", category=UserWarning)
        sc.pp.normalize_total(section, target_sum=target_sum)
    section = section[:, genes].copy()
    if transform == "log1p":
        sc.pp.log1p(section)
    elif transform == "sqrt":
        sc.pp.sqrt(section)
    return sp.csr_matrix(section.X)


def pearson_residuals(counts: sp.csr_matrix, genes: np.ndarray) -> np.ndarray:
    """Analytic Pearson residuals (n, n_genes) float32, dense (Lause, Berens and Kobak 2021; scanpy's, theta 100).

    They are neither normalised nor scaled any further: that is what the residual is. Genes without counts in any of
    the spots, and spots without counts in any of the genes, have residuals of 0.
    """
    import anndata
    import scanpy as sc

    chosen = counts[:, genes].astype(np.float64)
    rows = np.flatnonzero(np.asarray(chosen.sum(axis=1)).ravel() > 0)
    columns = np.flatnonzero(np.asarray(chosen.sum(axis=0)).ravel() > 0)
    residuals = np.zeros(chosen.shape, dtype=np.float32)
    if rows.size and columns.size:
        section = anndata.AnnData(chosen[rows][:, columns])
        sc.experimental.pp.normalize_pearson_residuals(section)
        residuals[np.ix_(rows, columns)] = section.X
    return residuals


def is_constant(x: np.ndarray | sp.csr_matrix) -> np.ndarray:
    """Which columns (d,) have one value for all spots."""
    if isinstance(x, np.ndarray):
        return np.asarray(x.max(axis=0) == x.min(axis=0))
    return np.asarray(x.max(axis=0).todense() == x.min(axis=0).todense()).ravel()


def principal_components(scaled: np.ndarray | sp.csr_matrix, n_pcs: int, *, seed: int) -> np.ndarray:
    """Scores (n, p) float32 on the leading components, centred implicitly: a sparse matrix stays sparse.

    p is ``n_pcs``, or one less than the smaller side of the matrix. Each component's sign is fixed.
    """
    import scanpy as sc

    p = min(n_pcs, min(scaled.shape) - 1)
    if p < 1:
        msg = (
            f"Expected at least 2 spots and 2 features that vary for a PCA, found {scaled.shape[0]} and "
            f"{scaled.shape[1]}. Check --layer, or give features with --rep."
        )
        raise InputError(msg)
    if is_constant(scaled).all():
        msg = "Expected features that vary between spots, found only constant ones. Check --layer or --rep."
        raise InputError(msg)
    return np.asarray(sc.pp.pca(scaled, n_comps=p, svd_solver="arpack", random_state=seed), dtype=np.float32)
