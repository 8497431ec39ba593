"""Describe the domains of fitted sections, in memory or on disk."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spatialpdvi.api.checked import checked_adata, checked_fit, fitted_files
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.storage.paths import section_names
from spatialpdvi.runtime.memory import memory_limit
from spatialpdvi.runtime.progress import Progress, progress_of

if TYPE_CHECKING:
    from anndata import AnnData

    from spatialpdvi.description.tables import Description

__all__ = ["describe", "describe_files"]


def describe(
    adata: "AnnData",
    *,
    by: str | None = None,
    condition: str | None = None,
    domain_key: str | None = None,
    key_added: str = "pdvi",
    spatial_key: str | None = None,
    sample_key: str | None = None,
    layer: str | None = None,
    gene_key: str | None = None,
    n_genes: int = 100,
    n_perms: int = 1000,
    seed: int = 0,
    store: bool = False,
    progress: Progress | bool | None = None,
) -> "Description":
    """Describe the domains of a fitted section, or of several sections in one AnnData.

    For each section by itself: sizes and areas of the domains, what they are made of (``by``), which of them touch, and
    which genes vary in space within a domain. With ``condition``, the shares of the domains are compared between groups
    of sections. squidpy computes the statistics in space; install it with ``pip install 'spatialpdvi[squidpy]'``.

    Parameters
    ----------
    adata
        With the result of a fit, or with domains in ``domain_key``.
    by
        Column of ``obs`` with the types whose share in each domain is counted, such as cell types.
    condition
        Column of ``obs`` with the condition of each section. Sections, not spots, are the replicates of the exact
        permutation test.
    domain_key
        Column of ``obs`` with other domains than those of the fit; spots without one are left out.
    key_added
        Prefix of the keys that the fit wrote.
    spatial_key, sample_key
        The coordinates, and the column of ``obs`` with the section of each spot; by default those of the fit.
    layer
        Where the raw counts are; by default where the fit found them.
    gene_key
        Column of ``var`` with the gene names to show; by default the index of ``var``.
    n_genes
        Largest number of genes that are tested in a domain, those with the largest variance; 0 for none.
    n_perms
        Number of times that the domains are shuffled for the z of contacts.
    seed
        Of the shuffles. The result has the same bits for any number of threads.
    store
        Whether to write the tables into ``uns['pdvi_describe']``, where `report_files` finds them.
    progress
        True shows the stages as lines on stderr; by default nothing is shown.

    Returns
    -------
    Description
        The tables, as data frames.

    Raises
    ------
    InputError
        Where squidpy is not installed, there is no fit, or a column or option cannot be used.

    Examples
    --------
    >>> found = spv.describe(adata, by="annotation", n_genes=10)
    >>> int(found.domains["spots"].sum()) == adata.n_obs
    True
    >>> found.contacts.columns[:4].tolist()
    ['section', 'domain', 'other', 'contacts']
    """
    from spatialpdvi.description.sections import DescribeOptions, describe_source, join_parts
    from spatialpdvi.io.results.described import DescribedKeys
    from spatialpdvi.io.results.writing import apply_elements

    progress = progress_of(progress)
    options = DescribeOptions(
        keys=Keys(key_added),
        where=DescribedKeys(domain_key, spatial_key, sample_key, by, condition),
        layer=layer,
        gene_key=gene_key,
        n_genes=n_genes,
        n_perms=n_perms,
        seed=seed,
        store=store,
    )
    source = checked_adata(adata, options.keys, "describe_files", store=store)
    found = join_parts([describe_source(source, "section", options, progress)], options)
    if store:
        apply_elements(adata, {("uns", options.keys.description): found.stored(found.sections["section"])})
    return found


def describe_files(
    paths: Sequence[str | Path],
    *,
    by: str | None = None,
    condition: str | None = None,
    domain_key: str | None = None,
    key_added: str = "pdvi",
    spatial_key: str | None = None,
    sample_key: str | None = None,
    layer: str | None = None,
    gene_key: str | None = None,
    n_genes: int = 100,
    n_perms: int = 1000,
    seed: int = 0,
    output: str | Path | None = None,
    store: bool = False,
    memory: str | None = None,
    counts: Sequence[str | Path] = (),
    progress: Progress | bool | None = None,
) -> "Description":
    """Describe the domains of fitted files as `describe` does. A file is a section, or holds several.

    Parameters
    ----------
    paths
        At least one h5ad file or zarr store. Their sections have different names: those of the files, or those in the
        column of sections of a file that holds several.
    by, condition, domain_key, key_added, spatial_key, sample_key, layer, gene_key, n_genes, n_perms, seed
        As for `describe`.
    output
        Folder for the tables as CSV, everything as ``describe.json``, and pictures; it is made if it does not exist.
        Files of an earlier description in it are replaced, or removed where there is no such table any more.
    store
        Whether to write the tables of its own sections into each file, one file after the other, each all or nothing.
    memory
        Memory that the counts may use, such as "8GB"; by default all free memory. Counts that need more, with their
        copies, are read block by block.
    counts
        For results that were written with ``slim``: a file with the counts of the same spots for each of ``paths``.
    progress
        True shows the stages as lines on stderr; by default nothing is shown.

    Returns
    -------
    Description
        The tables of all sections.

    Raises
    ------
    InputError
        Where squidpy is not installed, a file cannot be used or has no fit, sections have the same name, or a column or
        option cannot be used.

    Examples
    --------
    >>> found = spv.describe_files(["fitted.h5ad"], n_genes=0, store=True)
    >>> "pdvi_describe" in anndata.read_h5ad("fitted.h5ad").uns
    True
    """
    from spatialpdvi.api.folders import check_folder, write_description
    from spatialpdvi.description.sections import DescribeOptions, describe_source, join_parts
    from spatialpdvi.io.results.described import DescribedKeys
    from spatialpdvi.io.results.slim import counts_of_each
    from spatialpdvi.io.results.writing import write_elements
    from spatialpdvi.io.storage.disk import name_earlier
    from spatialpdvi.io.storage.locks import claimed

    locations = fitted_files(paths)
    progress = progress_of(progress)
    options = DescribeOptions(
        keys=Keys(key_added),
        where=DescribedKeys(domain_key, spatial_key, sample_key, by, condition),
        layer=layer,
        gene_key=gene_key,
        n_genes=n_genes,
        n_perms=n_perms,
        seed=seed,
        store=store,
        memory=memory_limit(memory),
    )
    others = counts_of_each(locations, counts)
    folder = None if output is None else check_folder(output, locations, command="describe")
    with claimed(*(locations if store else ()), folder):
        parts = []
        for location, other, name in zip(locations, others, section_names(locations), strict=True):
            with checked_fit(location, other, options.keys, store=store) as source:
                parts.append(describe_source(source, name, options, progress))
        found = join_parts(parts, options)
        with name_earlier() as written:
            if folder is not None:
                with progress.stage("pictures"):
                    write_description(found, folder)
                written.append(folder)
            if store:
                with progress.stage("write"):
                    for location, part in zip(locations, parts, strict=True):
                        elements = {("uns", options.keys.description): found.stored(part.sections["section"])}
                        write_elements(location, location, elements)
                        written.append(location)
    return found
