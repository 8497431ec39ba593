"""Find the marker genes of the domains or states of a fitted section, in memory or on disk."""

from pathlib import Path
from typing import TYPE_CHECKING

from spatialpdvi.api.checked import checked_adata, checked_fit
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.storage.paths import locate
from spatialpdvi.runtime.memory import memory_limit
from spatialpdvi.runtime.progress import Progress, progress_of

if TYPE_CHECKING:
    from anndata import AnnData
    from pandas import DataFrame


__all__ = ["markers", "markers_file"]


def markers(
    adata: "AnnData",
    *,
    n: int = 10,
    of: str = "domain",
    key_added: str = "pdvi",
    layer: str | None = None,
    gene_key: str | None = None,
    store: bool = False,
    progress: Progress | bool | None = None,
) -> "DataFrame":
    """Find the marker genes of each domain, or of each cell state, of a fitted section.

    Genes are ranked by Welch's t-test of log-normalised counts, between the spots of a domain and all other spots
    (`spatialpdvi.marker_genes.rank_markers`). The p-values are not calibrated, because the domains were found from the
    same counts.

    Parameters
    ----------
    adata
        A fitted section with raw counts.
    n
        Largest number of genes per domain.
    of
        "domain", or "state" for the cell states that domains share; a spot belongs to its likeliest state.
    key_added
        Prefix of the keys that the fit wrote.
    layer
        Where the counts are; by default where the fit found them.
    gene_key
        Column of ``var`` with the gene names to show; by default the index of ``var``.
    store
        Whether to write the table into ``uns['pdvi_markers']``, or ``uns['pdvi_state_markers']``, too.
    progress
        True shows the stages as lines on stderr; by default nothing is shown.

    Returns
    -------
    A table with a row for each marker gene, by domain and falling score. The columns are ``domain`` (or ``state``),
    ``gene``, ``score`` (the t statistic), ``log_fold_change`` (to base 2), ``p_adjusted``, and the shares of spots with
    the gene inside and outside the domain, ``share_in`` and ``share_out``.

    Raises
    ------
    InputError
        Where the section has no fit or no counts, or its domains share no states.

    Examples
    --------
    >>> table = spv.markers(adata, n=2)
    >>> table.columns[:3].tolist()
    ['domain', 'gene', 'score']
    >>> table["domain"].value_counts().to_dict() == {"0": 2, "1": 2, "2": 2}
    True
    """
    from spatialpdvi.io.results.writing import apply_elements, marker_columns
    from spatialpdvi.marker_genes import markers_of

    progress, keys = progress_of(progress), Keys(key_added)
    source = checked_adata(adata, keys, "markers_file", store=store)
    with progress.stage("markers"):
        _, table = markers_of(source, keys, n=n, of=of, layer=layer, gene_key=gene_key)
    if store:
        apply_elements(adata, marker_columns(table, keys, of))
    return table


def markers_file(
    path: str | Path,
    *,
    n: int = 10,
    of: str = "domain",
    key_added: str = "pdvi",
    layer: str | None = None,
    gene_key: str | None = None,
    store: bool = False,
    memory: str | None = None,
    counts: str | Path | None = None,
    progress: Progress | bool | None = None,
) -> "DataFrame":
    """Find the marker genes of each domain of a fitted file as `markers` does.

    Parameters
    ----------
    path
        A fitted h5ad file or zarr store.
    n, of, key_added, layer, gene_key
        As for `markers`.
    store
        Whether to write the table into the file too, all or nothing.
    memory
        Memory that the counts may use, such as "8GB"; by default all free memory. Counts that need more, with their
        copies, are read block by block.
    counts
        A file with the counts of the same spots, for a result that was written with ``slim``; by default the counts are
        in ``path``.
    progress
        True shows the stages as lines on stderr; by default nothing is shown.

    Returns
    -------
    The table that `markers` returns.

    Raises
    ------
    InputError
        Where the file cannot be used, or has no fit, no counts, or no states.

    Examples
    --------
    >>> table = spv.markers_file("fitted.h5ad", n=2, store=True)
    >>> "pdvi_markers" in anndata.read_h5ad("fitted.h5ad").uns
    True
    """
    from spatialpdvi.io.results.writing import marker_columns, write_elements
    from spatialpdvi.io.storage.locks import claimed
    from spatialpdvi.marker_genes import markers_of

    progress, keys = progress_of(progress), Keys(key_added)
    most = memory_limit(memory)
    location = locate(path)
    with claimed(location if store else None):
        with progress.stage("markers"), checked_fit(location, counts, keys, store=store) as source:
            _, table = markers_of(source, keys, n=n, of=of, layer=layer, gene_key=gene_key, memory=most)
        if store:
            with progress.stage("write"):
                write_elements(location, location, marker_columns(table, keys, of))
    return table
