"""What a domain is, in genes: those that it expresses more than the rest of the section."""

import warnings

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.features.scaling import normalised_genes, take_genes
from spatialpdvi.threads import single_threaded

__all__ = ["COLUMNS", "marker_genes", "rank_markers"]

COLUMNS = ("domain", "gene", "score", "log_fold_change", "p_adjusted", "share_in", "share_out")

_METHOD = "t-test_overestim_var"
_TOTAL = 1e4  # counts of a spot after normalisation
_FEWEST = 2  # spots, in a domain and outside of it: of fewer there is no variance


def rank_markers(counts: sp.csr_matrix, genes: np.ndarray, domains: pd.Categorical, *, n: int = 10) -> pd.DataFrame:
    """The genes by which each domain differs most from all other spots, by scanpy's `rank_genes_groups`.

    Counts are normalised to 10,000 a spot and log(1 + x) is taken; a gene's score is Welch's t of the domain against
    all other spots, with the variance of the others divided by the domain's number of spots and not by their own
    (``t-test_overestim_var``): cautious, so that a small domain has no long list, and made of means and variances
    alone, twenty times as fast as rank sums with much the same genes. Sparse all the way.

    The domains were found on the same counts, so a gene that helped to find them differs between them by construction:
    adjusted p-values are no calibrated evidence (they are far too small), only an order.

    Parameters
    ----------
    counts
        (n_spots, n_genes) whole numbers.
    genes
        Their names (n_genes,), which may repeat.
    domains
        (n_spots,), none missing.
    n
        Genes per domain at the most: those with a score that is not above 0 are left out.

    Returns
    -------
    One row per domain and gene, the highest score first: ``domain``, ``gene``, ``score`` (t), ``log_fold_change`` (to
    base 2), ``p_adjusted`` (Benjamini-Hochberg), ``share_in`` and ``share_out`` (of the spots that express the gene, in
    the domain and outside).

    Raises
    ------
    InputError
        Where ``n`` is below 1.

    Warns
    -----
    InputWarning
        Names the domains without two spots, or without two spots outside: they have no rows.
    """
    if n < 1:
        msg = f"Expected at least 1 gene per domain, found {n}. Give --n-genes 10, for example."
        raise InputError(msg)
    chosen = _large_enough(domains)
    expressed = np.flatnonzero(np.bincount(counts.indices, weights=counts.data > 0, minlength=counts.shape[1]))
    if not chosen:
        return pd.DataFrame({name: np.empty(0, dtype=object if name in COLUMNS[:2] else float) for name in COLUMNS})
    with single_threaded():
        found = _rank(counts, expressed, domains, chosen, n)
    parts = []
    for domain in chosen:
        where = found["names"][domain].astype(np.int64)
        rows = pd.DataFrame(
            {
                "domain": domain,
                "gene": np.asarray(genes, dtype=object)[expressed[where]],
                "score": found["scores"][domain].astype(np.float64),
                "log_fold_change": found["logfoldchanges"][domain].astype(np.float64),
                "p_adjusted": found["pvals_adj"][domain].astype(np.float64),
                "share_in": found["pts"][domain].to_numpy(dtype=np.float64)[where],
                "share_out": found["pts_rest"][domain].to_numpy(dtype=np.float64)[where],
            }
        )
        parts.append(rows[rows["score"] > 0])
    return pd.concat(parts, ignore_index=True)[list(COLUMNS)]


def marker_genes(table: pd.DataFrame, domains: pd.Categorical) -> dict[str, list[str]]:
    """Genes of each category by its name, the highest score first; none for those that have no markers."""
    return {str(name): table["gene"][table["domain"] == name].tolist() for name in domains.categories}


def _large_enough(domains: pd.Categorical) -> list[str]:
    """Names of the domains that can be compared; those that cannot are told."""
    sizes = np.bincount(domains.codes, minlength=len(domains.categories))
    enough = (sizes >= _FEWEST) & (domains.size - sizes >= _FEWEST)
    if not enough.all():
        left_out = ", ".join(repr(str(name)) for name in domains.categories[~enough])
        msg = (
            f"Expected at least {_FEWEST} spots in every domain and outside of it, found fewer for {left_out}: without "
            "markers."
        )
        warnings.warn(msg, InputWarning, stacklevel=3)
    return [str(name) for name in domains.categories[enough]]


def _rank(
    counts: sp.csr_matrix, expressed: np.ndarray, domains: pd.Categorical, chosen: list[str], n: int
) -> dict[str, pd.DataFrame]:
    """What scanpy finds; genes are named by their position in ``expressed``, for names may repeat."""
    import anndata
    import scanpy as sc

    totals = np.asarray(counts.sum(axis=1, dtype=np.float64)).ravel()
    values = normalised_genes(take_genes(counts, expressed), totals, target_sum=_TOTAL, transform="log1p")
    section = anndata.AnnData(
        values,
        obs=pd.DataFrame({"domain": domains}, index=np.arange(values.shape[0]).astype(str)),
        var=pd.DataFrame(index=np.arange(values.shape[1]).astype(str)),
    )
    with warnings.catch_warnings():
        # a table of shares with a column for each domain: scanpy adds them one by one
        warnings.simplefilter("ignore", pd.errors.PerformanceWarning)
        sc.tl.rank_genes_groups(section, "domain", groups=chosen, method=_METHOD, n_genes=n, pts=True)
    return dict(section.uns["rank_genes_groups"])
