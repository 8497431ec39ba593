"""What a domain is, in genes: those that it expresses more than the rest of the section."""

import warnings

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control, ttest_ind_from_stats

from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.features.moments import GroupMoments, moments_by_group
from spatialpdvi.runtime.rows import CountRows

__all__ = ["COLUMNS", "marker_genes", "rank_markers"]

COLUMNS = ("domain", "gene", "score", "log_fold_change", "p_adjusted", "share_in", "share_out")

_TOTAL = 1e4  # counts of a spot after normalisation
_ABOVE_ZERO = 1e-9  # added to both sides of a fold change, as scanpy does
_FEWEST = 2  # spots, in a domain and outside of it: of fewer there is no variance


def rank_markers(counts: CountRows, genes: np.ndarray, domains: pd.Categorical, *, n: int = 10) -> pd.DataFrame:
    """The genes by which each domain differs most from all other spots: scanpy's `rank_genes_groups` in one pass.

    Counts are normalised to 10,000 a spot and log(1 + x) is taken; a gene's score is Welch's t of the domain against
    all other spots, with the variance of the others divided by the domain's number of spots and not by their own
    (``t-test_overestim_var``): cautious, so that a small domain has no long list, and made of means and variances
    alone, which one pass over the counts adds up, wherever they are kept. Rank sums give much the same genes.

    The domains were found on the same counts, so a gene that helped to find them differs between them by construction:
    adjusted p-values are no calibrated evidence (they are far too small), only an order.

    Parameters
    ----------
    counts
        (n_spots, n_genes) whole numbers, in memory or read block by block.
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
    if not chosen.size:
        return pd.DataFrame({name: np.empty(0, dtype=object if name in COLUMNS[:2] else float) for name in COLUMNS})
    codes, k = domains.codes.astype(np.int64), len(domains.categories)
    everyone = moments_by_group(counts, codes, k, target_sum=_TOTAL)
    expressed = np.flatnonzero(everyone.present.any(axis=0))
    names = np.asarray(genes, dtype=object)[expressed]
    others = everyone.others()
    parts = []
    for group in chosen:
        own, rest = (moments.of(group, expressed) for moments in (everyone, others))
        found = _compare(own, rest)
        best = np.argsort(-found["score"], kind="stable")[:n]
        best = best[found["score"][best] > 0]
        columns = {name: values[best] for name, values in found.items()}
        parts.append(pd.DataFrame({"domain": str(domains.categories[group]), "gene": names[best], **columns}))
    return pd.concat(parts, ignore_index=True)[list(COLUMNS)]


def marker_genes(table: pd.DataFrame, domains: pd.Categorical) -> dict[str, list[str]]:
    """Genes of each category by its name, the highest score first; none for those that have no markers."""
    return {str(name): table["gene"][table["domain"] == name].tolist() for name in domains.categories}


def _large_enough(domains: pd.Categorical) -> np.ndarray:
    """Codes of the domains that can be compared; those that cannot are told."""
    sizes = np.bincount(domains.codes, minlength=len(domains.categories))
    enough = (sizes >= _FEWEST) & (domains.size - sizes >= _FEWEST)
    if not enough.all():
        left_out = ", ".join(repr(str(name)) for name in domains.categories[~enough])
        msg = (
            f"Expected at least {_FEWEST} spots in every domain and outside of it, found fewer for {left_out}: without "
            "markers."
        )
        warnings.warn(msg, InputWarning, stacklevel=3)
    return np.flatnonzero(enough)


def _compare(own: GroupMoments, rest: GroupMoments) -> dict[str, np.ndarray]:
    """Columns of the table for all genes of one domain, beside the spots outside of it."""
    (mean, variance), (mean_rest, variance_rest) = own.mean_variance(), rest.mean_variance()
    size = int(own.sizes)
    with np.errstate(invalid="ignore"):
        score, p = ttest_ind_from_stats(
            mean, np.sqrt(variance), size, mean_rest, np.sqrt(variance_rest), size, equal_var=False
        )
    same = np.isnan(score)  # neither varies, about the same mean
    fold = (np.expm1(mean) + _ABOVE_ZERO) / (np.expm1(mean_rest) + _ABOVE_ZERO)
    return {
        "score": np.where(same, 0.0, score),
        "log_fold_change": np.log2(fold),
        "p_adjusted": false_discovery_control(np.where(same, 1.0, p)),
        "share_in": own.shares(),
        "share_out": rest.shares(),
    }
