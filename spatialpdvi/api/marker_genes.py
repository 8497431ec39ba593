"""Find the marker genes of the domains of a fitted section, in memory or on disk."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spatialpdvi.io.formats.sources import AnnDataSource, Source
from spatialpdvi.io.results.keys import Keys, check_free
from spatialpdvi.io.storage.paths import locate
from spatialpdvi.runtime.memory import free_memory, parse_size
from spatialpdvi.runtime.progress import Progress

if TYPE_CHECKING:
    from anndata import AnnData
    from pandas import DataFrame

__all__ = ["markers", "markers_file"]


def markers(
    adata: "AnnData",
    *,
    n: int = 10,
    key_added: str = "pdvi",
    layer: str | None = None,
    gene_key: str | None = None,
    store: bool = False,
) -> "DataFrame":
    """Find the marker genes of each domain of a fitted section.

    Genes are ranked by Welch's t-test of log-normalised counts, between the spots of a domain and all other spots
    (`spatialpdvi.marker_genes.rank_markers`). The p-values are not calibrated, because the domains were found from the
    same counts.

    Parameters
    ----------
    adata
        A fitted section with raw counts.
    n
        Largest number of genes per domain.
    key_added
        Prefix of the keys that the fit wrote.
    layer
        Where the counts are; by default where the fit found them.
    gene_key
        Column of ``var`` with the gene names to show; by default the index of ``var``.
    store
        Whether to write the table into ``uns['pdvi_markers']`` too.

    Returns
    -------
    A table with a row for each marker gene, by domain and falling score. The columns are ``domain``, ``gene``,
    ``score`` (the t statistic), ``log_fold_change`` (to base 2), ``p_adjusted``, and the shares of spots with the gene
    inside and outside the domain, ``share_in`` and ``share_out``.

    Raises
    ------
    InputError
        Where the section has no fit or no counts.

    Examples
    --------
    >>> table = spv.markers(adata, n=2)
    >>> table.columns[:3].tolist()
    ['domain', 'gene', 'score']
    >>> table["domain"].value_counts().to_dict() == {"0": 2, "1": 2, "2": 2}
    True
    """
    from spatialpdvi.io.results.writing import apply_elements

    keys = Keys(key_added)
    table = _markers(AnnDataSource(adata), keys, n=n, layer=layer, gene_key=gene_key)
    if store:
        apply_elements(adata, _columns(table, keys))
    return table


def markers_file(
    path: str | Path,
    *,
    n: int = 10,
    key_added: str = "pdvi",
    layer: str | None = None,
    gene_key: str | None = None,
    store: bool = False,
    memory: str | None = None,
    progress: Progress | None = None,
) -> "DataFrame":
    """Find the marker genes of each domain of a fitted file as `markers` does.

    Parameters
    ----------
    path
        A fitted h5ad file or zarr store.
    n, key_added, layer, gene_key
        As for `markers`.
    store
        Whether to write the table into the file too, all or nothing.
    memory
        Memory that the counts may use, such as "8GB"; by default all free memory. Counts that need more, with their
        copies, are read block by block.
    progress
        Shows the stages; by default nothing is shown.

    Returns
    -------
    The table that `markers` returns.

    Raises
    ------
    InputError
        Where the file cannot be used, or has no fit or no counts.

    Examples
    --------
    >>> table = spv.markers_file("fitted.h5ad", n=2, store=True)
    >>> "pdvi_markers" in anndata.read_h5ad("fitted.h5ad").uns
    True
    """
    from spatialpdvi.io.formats.h5ad import H5adSource
    from spatialpdvi.io.results.writing import check_output, write_elements
    from spatialpdvi.io.storage.locks import claimed

    progress, keys = progress or Progress(), Keys(key_added)
    most = free_memory() if memory is None else parse_size(memory)
    location = locate(path)
    with claimed(location if store else None):
        with progress.stage("markers"), H5adSource(location) as source:
            if store:
                check_output(location, location)
            table = _markers(source, keys, n=n, layer=layer, gene_key=gene_key, memory=most)
        if store:
            with progress.stage("write"):
                write_elements(location, location, _columns(table, keys))
    return table


def _markers(
    source: Source, keys: Keys, *, n: int, layer: str | None, gene_key: str | None, memory: int | None = None
) -> "DataFrame":
    from spatialpdvi.io.results.expression import read_expression
    from spatialpdvi.marker_genes import rank_markers

    check_free(source, keys)
    found = read_expression(source, keys, layer=layer, gene_key=gene_key, memory=memory)
    return rank_markers(found.counts, found.genes, found.domains, n=n)


def _columns(table: "DataFrame", keys: Keys) -> dict[tuple[str, str], Any]:
    """Return the table as it is stored, as columns of equal length."""
    return {("uns", keys.markers): {name: table[name].to_numpy() for name in table}}
