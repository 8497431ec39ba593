"""Statistics in space, computed by squidpy: contacts between domains, and genes that vary within a domain.

squidpy runs in this process and in one thread, so that a seed gives the same bits for any number of threads. It takes
an AnnData; each call here makes a small one of one section, so that nothing is compared across sections.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData
from scipy.stats import norm

from spatialpdvi.description.differences import q_values
from spatialpdvi.errors import InputError
from spatialpdvi.graph.neighbors import between_groups, mutual_knn, only_edges
from spatialpdvi.io.results.described import SectionDomains
from spatialpdvi.options.stages import default_n_neighbors
from spatialpdvi.runtime.threads import single_threaded

__all__ = ["FEWEST_SPOTS", "contact_table", "load_squidpy", "section_graph", "variable_genes"]

FEWEST_SPOTS = 30  # of a domain whose genes are tested: the p-value is that of a normal distribution
_DOMAIN, _GRAPH = "domain", "spatial_connectivities"


def load_squidpy() -> Any:
    """Import squidpy and return it.

    Raises
    ------
    InputError
        Where it is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the libraries that it imports
            import squidpy
    except ImportError as error:
        raise InputError(
            "the package squidpy, which computes the statistics",
            f"none that can be imported ({error})",
            "Install it: pip install 'spatialpdvi[squidpy]'.",
        ) from error
    return squidpy


def section_graph(section: SectionDomains) -> tuple[sp.csr_matrix, str]:
    """Return which spots of a section are neighbours, and in words where that is from.

    These are the edges that the fit has stored, or those of the graph that it was given. Where neither is in the file,
    or not for these spots in these places, they are found again: mutual nearest neighbours, as many as in the fit.

    Returns
    -------
    graph, source
        (n, n) symmetric CSR of ones, float64, and a text.
    """
    if section.graph is not None:
        graph, source = section.graph.copy(), section.graph_source
    else:
        k = section.n_neighbors or default_n_neighbors()
        graph, source = mutual_knn(section.coordinates, k), f"mutual neighbours among the {k} nearest"
    graph.data = np.ones(graph.nnz)
    return graph, source


def contact_table(section: SectionDomains, graph: sp.csr_matrix, *, n_perms: int, seed: int) -> pd.DataFrame:
    """Count the contacts between the domains of a section, and compare them with those of shuffled domains.

    A contact is a pair of neighbouring spots, which `squidpy.gr.interaction_matrix` counts. Its
    `squidpy.gr.nhood_enrichment` shuffles the domains of the spots ``n_perms`` times:

        z = (contacts - mean over shuffles) / standard deviation over shuffles

    It is called twice. ``z`` is of all spots and edges. Domains are connected regions, so this is large within domains
    and negative between most, also between neighbours. ``border_z`` is of the borders alone: of the spots that have a
    neighbour in another domain, and the edges between domains. It is above 0 for domains that touch more than border
    spots would at random.

    Parameters
    ----------
    section
        With its domains.
    graph
        (n, n), from `section_graph`.
    n_perms
        Number of shuffles.
    seed
        Of the shuffles.

    Returns
    -------
    pandas.DataFrame
        A row for each ordered pair of domains that the section has: ``section``, ``domain``, ``other``, ``contacts``
        (within a domain each pair counts twice, as in squidpy), ``border_share`` (of the contacts of ``domain`` with
        other domains), ``z``, ``q``, ``border_z`` and ``border_q``. The q-values are Benjamini-Hochberg's over the
        pairs of the section, from two-sided p-values of z as a standard normal. A z without meaning is NaN: where
        no shuffle changes the contacts, and ``border_z`` within a domain.
    """
    squidpy = load_squidpy()
    domains = section.domains.remove_unused_categories()
    names, k = [str(name) for name in domains.categories], len(domains.categories)
    codes = domains.codes.astype(np.int64)
    with _quiet():
        contacts = squidpy.gr.interaction_matrix(_section(graph, codes, k), _DOMAIN, copy=True).astype(np.int64)
        z = _enrichment(squidpy, graph, codes, k, n_perms=n_perms, seed=seed)
        border = only_edges(graph, between_groups(graph, codes))
        at_border = np.flatnonzero(np.diff(border.indptr) > 0)
        border_z = _enrichment(
            squidpy, border[at_border][:, at_border].tocsr(), codes[at_border], k, n_perms=n_perms, seed=seed
        )
    np.fill_diagonal(border_z, np.nan)
    between = np.where(np.eye(k, dtype=bool), 0, contacts)
    whole = between.sum(axis=1, keepdims=True)
    share = np.divide(between, whole, out=np.full((k, k), np.nan), where=whole > 0)
    np.fill_diagonal(share, np.nan)
    return pd.DataFrame(
        {
            "section": section.name,
            "domain": np.repeat(names, k).astype(object),
            "other": np.tile(names, k).astype(object),
            "contacts": contacts.ravel(),
            "border_share": share.ravel(),
            "z": z.ravel(),
            "q": _q_of_pairs(z).ravel(),
            "border_z": border_z.ravel(),
            "border_q": _q_of_pairs(border_z).ravel(),
        }
    )


def variable_genes(values: np.ndarray, genes: np.ndarray, graph: sp.csr_matrix) -> pd.DataFrame:
    """Compute Moran's I of genes among the spots of one domain, as `squidpy.gr.spatial_autocorr` does.

        I = (n / sum_ij w_ij) (sum_ij w_ij y_i y_j) / (sum_i y_i²)

    where y is the centred expression and w has rows that sum to 1. It is near 0 for a gene without pattern.

    Parameters
    ----------
    values
        (n, genes) normalised expression, each gene with a variance above 0.
    genes
        (genes,) names.
    graph
        (n, n) neighbours within the domain; every spot has one.

    Returns
    -------
    pandas.DataFrame
        A row for each gene, the largest ``moran_i`` first, with ``p`` (one-sided, of the normal distribution that I has
        without a pattern: small where neighbours are alike) and ``q`` (Benjamini-Hochberg over these genes).
    """
    squidpy = load_squidpy()
    # squidpy finds genes by name, and names may repeat
    names = [str(i) for i in range(genes.size)]
    with _quiet():
        adata = AnnData(values, var=pd.DataFrame(index=names), obsp={_GRAPH: graph})
        found = squidpy.gr.spatial_autocorr(
            adata, mode="moran", genes=names, copy=True, n_jobs=1, show_progress_bar=False
        )
    order, moran = found.index.astype(int).to_numpy(), found["I"].to_numpy()
    # squidpy's own p-value is of the tail on the side of the sign: it is small as well where neighbours differ
    p = norm.sf((moran + 1.0 / (len(values) - 1)) / np.sqrt(found["var_norm"].to_numpy()))
    return pd.DataFrame({"gene": genes[order], "moran_i": moran, "p": p, "q": q_values(p)})


def _enrichment(
    squidpy: Any, graph: sp.csr_matrix, codes: np.ndarray, k: int, *, n_perms: int, seed: int
) -> np.ndarray:
    """Return z (k, k); NaN where all shuffles give the same."""
    if k < 2 or not graph.nnz:
        return np.full((k, k), np.nan)
    result = squidpy.gr.nhood_enrichment(
        _section(graph, codes, k), _DOMAIN, n_perms=n_perms, seed=seed, copy=True, n_jobs=1, show_progress_bar=False
    )
    return np.where(np.isfinite(result.zscore), result.zscore, np.nan)


def _section(graph: sp.csr_matrix, codes: np.ndarray, k: int) -> AnnData:
    """An AnnData for squidpy: domains and neighbours, and no genes."""
    domains = pd.Categorical.from_codes(codes, [str(code) for code in range(k)])
    obs = pd.DataFrame({_DOMAIN: domains}, index=[str(i) for i in range(codes.size)])
    return AnnData(obs=obs, obsp={_GRAPH: graph})


def _q_of_pairs(z: np.ndarray) -> np.ndarray:
    """Benjamini-Hochberg over the pairs of a symmetric matrix of z, two-sided; NaN where z is."""
    upper = np.triu_indices(z.shape[0])
    square = np.empty(z.shape)
    square[upper] = square.T[upper] = q_values(2 * norm.sf(np.abs(z[upper])))
    return square


@contextmanager
def _quiet() -> Iterator[None]:
    """Run squidpy in one thread, and without the warnings of its libraries and of divisions by zero."""
    with single_threaded(), warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore")
        yield
