"""Genes that vary in space within a domain: which genes are tested, and their Moran's I."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.description.neighbourhoods import FEWEST_SPOTS, variable_genes
from spatialpdvi.features.moments import moments_by_group
from spatialpdvi.io.results.described import SectionDomains
from spatialpdvi.marker_genes import empty_table, expression_blocks
from spatialpdvi.runtime.rows import CountRows

__all__ = ["gene_table"]

FEWEST_SHARE = 0.05  # of the domain's spots that express a gene which is tested
_COLUMNS = ("section", "domain", "gene", "moran_i", "p", "q", "share")


class _Domain(NamedTuple):
    """The spots of a domain in a section that have a neighbour in it."""

    section: str
    name: str
    rows: np.ndarray  # (m,) of the file, ascending
    graph: sp.csr_matrix  # (m, m)


def gene_table(
    counts: CountRows,
    genes: np.ndarray,
    sections: Sequence[SectionDomains],
    graphs: Sequence[sp.csr_matrix],
    *,
    n_genes: int,
) -> pd.DataFrame:
    """Find the genes that vary in space within each domain of each section of a file.

    Expression is log(1 + counts per 10,000). In each domain the ``n_genes`` genes of the largest variance are tested,
    of those that at least 5 % of its spots express. The variance does not depend on where the spots lie, so this choice
    does not favour genes with a pattern. Spots without a neighbour in the domain are left out, as are domains with
    fewer than 30 other spots.

    Parameters
    ----------
    counts
        (n_file, genes_file) whole numbers of all spots of the file.
    genes
        (genes_file,) names.
    sections, graphs
        Sections of the file, and the neighbours (n, n) of each.
    n_genes
        Largest number of genes that are tested in a domain.

    Returns
    -------
    pandas.DataFrame
        A row for each gene that was tested, by section, domain and falling ``moran_i``: ``section``, ``domain``,
        ``gene``, ``moran_i``, ``p``, ``q`` and ``share`` (of the domain's spots that express it).
    """
    domains = [domain for pair in zip(sections, graphs, strict=True) for domain in _domains(*pair)]
    codes = np.full(counts.shape[0], len(domains))  # the last group is of all other spots
    for code, domain in enumerate(domains):
        codes[domain.rows] = code
    moments = moments_by_group(counts, codes, len(domains) + 1)
    chosen, shares = [], []
    for code in range(len(domains)):
        everything = moments.of(code, np.arange(genes.size))
        _, variance = everything.mean_variance()
        variance = np.where((everything.shares() >= FEWEST_SHARE) & (variance > 0), variance, 0.0)
        best = np.argsort(-variance, kind="stable")[:n_genes]
        chosen.append(best[variance[best] > 0])
        shares.append(everything.shares())
    parts = []
    for domain, own, share, values in zip(domains, chosen, shares, _expression(counts, domains, chosen), strict=True):
        if not own.size:
            continue
        found = variable_genes(values.toarray(), own, domain.graph)
        place = found["gene"].to_numpy()
        parts.append(
            found.assign(section=domain.section, domain=domain.name, gene=genes[place], share=share[place])[
                list(_COLUMNS)
            ]
        )
    if not parts:
        return empty_table(_COLUMNS, texts={"section", "domain", "gene"})
    return pd.concat(parts, ignore_index=True)


def _expression(counts: CountRows, domains: Sequence[_Domain], chosen: Sequence[np.ndarray]) -> Iterator[sp.csr_matrix]:
    """Yield the expression (m, g) of each domain's own genes, in one pass: no more is in memory at any time."""
    wanted = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *chosen]))
    columns = [np.searchsorted(wanted, own) for own in chosen]
    parts: list[list[sp.csr_matrix]] = [[] for _ in domains]
    first = 0
    for block in expression_blocks(counts, wanted):
        for domain, own, part in zip(domains, columns, parts, strict=True):
            start, stop = np.searchsorted(domain.rows, [first, first + block.shape[0]])
            part.append(block[domain.rows[start:stop] - first][:, own])
        first += block.shape[0]
    for part in parts:
        yield sp.csr_matrix(sp.vstack(part))
        part.clear()


def _domains(section: SectionDomains, graph: sp.csr_matrix) -> list[_Domain]:
    """The domains of a section that have enough spots with neighbours."""
    found = []
    for code, name in enumerate(section.domains.categories):
        spots = np.flatnonzero(section.domains.codes == code)
        own = graph[spots][:, spots].tocsr()
        joined = np.diff(own.indptr) > 0
        if joined.sum() >= FEWEST_SPOTS:
            found.append(_Domain(section.name, str(name), section.spots[spots[joined]], own[joined][:, joined].tocsr()))
    return found
