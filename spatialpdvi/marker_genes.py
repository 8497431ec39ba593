"""Marker genes: the genes that a domain, or a cell state, expresses more than the rest of the section."""

import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.features.moments import SPOT_TOTAL, GroupMoments, moments_by_group
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.expression import Expression, read_expression
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.options.validation import check_of, read_kind
from spatialpdvi.runtime.rows import CountRows, row_blocks, row_sums, slices

__all__ = [
    "COLUMNS",
    "empty_table",
    "expression_blocks",
    "expression_tenths",
    "log_normalised",
    "marker_genes",
    "markers_of",
    "rank_markers",
    "unique_markers",
]

COLUMNS = ("domain", "gene", "score", "log_fold_change", "p_adjusted", "share_in", "share_out")

_ABOVE_ZERO = 1e-9  # added to both sides of a fold change, as scanpy does
_FEWEST = 2  # spots in a domain and outside of it: fewer have no variance


def rank_markers(
    counts: CountRows, genes: np.ndarray, domains: pd.Categorical, *, n: int = 10, of: str = "domain"
) -> pd.DataFrame:
    """Rank the genes by which each domain differs from all other spots, as scanpy's `rank_genes_groups` does.

    Counts are normalised to 10,000 per spot and transformed to log(1 + x). The score of a gene is Welch's t of the
    domain against all other spots, with the variance of the other spots divided by the number of spots in the domain
    instead of their own (``t-test_overestim_var`` in scanpy):

        t = (mean_in - mean_out) / sqrt((var_in + var_out) / n_in)

    This is cautious, so that a small domain has no long list, and needs only means and variances, which one pass over
    the counts computes. Rank sums give much the same genes.

    The domains were found from the same counts, so a gene that helped to find them differs between them by
    construction. The adjusted p-values are therefore far too small to be evidence; they only give an order.

    Parameters
    ----------
    counts
        (n_spots, n_genes) whole numbers, in memory or read block by block.
    genes
        Names of the genes (n_genes,), which may repeat.
    domains
        Domain of each spot (n_spots,), none missing; or its state.
    n
        Largest number of genes per domain; genes whose score is not above 0 are left out.
    of
        What ``domains`` are, "domain" or "state": the name of the first column.

    Returns
    -------
    pandas.DataFrame
        One row per domain and gene, the highest score first: ``domain``, ``gene``, ``score`` (t), ``log_fold_change``
        (to base 2), ``p_adjusted`` (Benjamini-Hochberg), ``share_in`` and ``share_out`` (shares of the spots that
        express the gene, in the domain and outside).

    Raises
    ------
    InputError
        If ``n`` is below 1.

    Warns
    -----
    InputWarning
        If a domain has fewer than two spots, or all other domains together have; such a domain has no rows.
    """
    if n < 1:
        raise InputError(f"at least 1 gene per {of}", f"{n}", f"Give {option('n', 10)}, for example.")
    chosen, names_of_columns = _large_enough(domains, of), [of, *COLUMNS[1:]]
    if not chosen.size:
        return empty_table(names_of_columns, texts=names_of_columns[:2])
    codes, k = domains.codes.astype(np.int64), len(domains.categories)
    everyone = moments_by_group(counts, codes, k)
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
        parts.append(pd.DataFrame({of: str(domains.categories[group]), "gene": names[best], **columns}))
    return pd.concat(parts, ignore_index=True)[names_of_columns]


def markers_of(
    source: Source,
    keys: Keys,
    *,
    n: int,
    of: str = "domain",
    layer: str | None = None,
    gene_key: str | None = None,
    memory: int | None = None,
) -> tuple[Expression, pd.DataFrame]:
    """Return the counts of a fitted section, and the table of `rank_markers`.

    Parameters
    ----------
    source, keys
        The section, and the keys that the fit wrote.
    n, of
        As for `rank_markers`.
    layer, gene_key, memory
        As for `spatialpdvi.io.results.expression.read_expression`.
    """
    check_of(of)
    read_kind("n", n, int)
    found = read_expression(source, keys, of=of, layer=layer, gene_key=gene_key, memory=memory)
    return found, rank_markers(found.counts, found.genes, found.groups, n=n, of=of)


def unique_markers(table: pd.DataFrame, genes: Iterable[Any]) -> list[str]:
    """Return the markers in their order, each once, whose names no other gene has.

    Parameters
    ----------
    table
        From `rank_markers`.
    genes
        Names of all genes.

    Raises
    ------
    InputError
        Where there is none.
    """
    times = Counter(map(str, genes))
    found = [gene for gene in dict.fromkeys(map(str, table["gene"])) if times[gene] == 1]
    if not found and len(table):
        raise InputError(
            "marker genes whose names no other gene has",
            f"only names that repeat (first: {str(table['gene'].iloc[0])!r})",
            f"Make the names unique, or name another column of them with {option('gene_key')}.",
        )
    if not found:
        raise InputError(
            "marker genes",
            "none, since no gene is higher in one domain than elsewhere",
            "Name the genes to compare.",
        )
    return found


def marker_genes(table: pd.DataFrame, domains: pd.Categorical) -> dict[str, list[str]]:
    """Return the genes of each domain by its name, the highest score first; an empty list for one without markers."""
    return {name: table["gene"][table["domain"] == name].tolist() for name in map(str, domains.categories)}


def empty_table(columns: Sequence[str], *, texts: Collection[str]) -> pd.DataFrame:
    """Return a table without rows whose columns have the types of one with rows: texts, and float64 for all others."""
    return pd.DataFrame({name: np.empty(0, dtype=object if name in texts else float) for name in columns})


def log_normalised(counts: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Return the expression of a few genes as `rank_markers` sees it: log(1 + 10,000 c / total).

    Parameters
    ----------
    counts
        Of these genes, (n, g).
    totals
        Of all genes, (n,); a spot without counts has expression 0.
    """
    share = np.divide(counts, totals[:, None], out=np.zeros(counts.shape), where=counts > 0)
    return np.log1p(SPOT_TOTAL * share)


def expression_blocks(counts: CountRows, genes: np.ndarray) -> Iterator[sp.csr_matrix]:
    """Yield the expression of some genes, block by block in the order of the spots: y = log(1 + 10,000 c / total).

    Parameters
    ----------
    counts
        (n, genes) whole numbers, in memory or read block by block; the total of a spot is over all genes.
    genes
        Columns (g,).

    Yields
    ------
    scipy.sparse.csr_matrix
        (b, g) float64; what is not stored is 0, as is all of a spot without counts.
    """
    for block in row_blocks(counts):
        for rows in slices(block.shape[0]):  # a matrix in memory is one block
            some = block[rows]
            total = row_sums(some)
            scale = np.divide(SPOT_TOTAL, total, out=np.zeros(total.size), where=total > 0)
            part = some[:, genes].astype(np.float64)
            part.data = np.log1p(part.data * np.repeat(scale, np.diff(part.indptr)))
            yield part


def expression_tenths(counts: CountRows, genes: np.ndarray) -> np.ndarray:
    """Return the expression of a few genes, as `expression_blocks` yields it, for a map: in tenths, in one pass.

    Parameters
    ----------
    counts
        (n, genes) whole numbers, in memory or read block by block.
    genes
        Columns (g,).

    Returns
    -------
    numpy.ndarray
        10 y, rounded, (n, g) uint8: at most 92.
    """
    found = np.zeros((counts.shape[0], genes.size), dtype=np.uint8)
    done = 0
    for block in expression_blocks(counts, genes):
        own = block.tocoo()  # dense, the block of all spots in memory would take eight times as much as the result
        found[done + own.row, own.col] = np.rint(10 * own.data)
        done += block.shape[0]
    return found


def _large_enough(domains: pd.Categorical, of: str) -> np.ndarray:
    """Return the codes of the domains that can be compared, and warn of the others."""
    sizes = np.bincount(domains.codes, minlength=len(domains.categories))
    enough = (sizes >= _FEWEST) & (domains.size - sizes >= _FEWEST)
    if not enough.all():
        left_out = ", ".join(repr(str(name)) for name in domains.categories[~enough])
        text = f"A {of} needs {_FEWEST} spots inside and outside of it for markers; there are none for {left_out}."
        warnings.warn(InputWarning(text), stacklevel=3)
    return np.flatnonzero(enough)


def _compare(own: GroupMoments, rest: GroupMoments) -> dict[str, np.ndarray]:
    """Return the columns of the table for all genes of one domain, compared with the spots outside of it."""
    from scipy.stats import false_discovery_control, ttest_ind_from_stats  # not at the top: it takes .3 s

    (mean, variance), (mean_rest, variance_rest) = own.mean_variance(), rest.mean_variance()
    size = int(own.sizes)
    with np.errstate(invalid="ignore"):
        score, p = ttest_ind_from_stats(
            mean, np.sqrt(variance), size, mean_rest, np.sqrt(variance_rest), size, equal_var=False
        )
    same = np.isnan(score)  # neither side varies, and the means are equal
    fold = (np.expm1(mean) + _ABOVE_ZERO) / (np.expm1(mean_rest) + _ABOVE_ZERO)
    return {
        "score": np.where(same, 0.0, score),
        "log_fold_change": np.log2(fold),
        "p_adjusted": false_discovery_control(np.where(same, 1.0, p)),
        "share_in": own.shares(),
        "share_out": rest.shares(),
    }
