"""Describe the domains of fitted sections, in memory or on disk."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.io.formats.sources import AnnDataSource, Source
from spatialpdvi.io.results.keys import Keys, check_free
from spatialpdvi.io.storage.paths import locate_all
from spatialpdvi.options.validation import check_seed, read_kind
from spatialpdvi.runtime.memory import memory_limit
from spatialpdvi.runtime.progress import Progress, progress_of

if TYPE_CHECKING:
    from anndata import AnnData

    from spatialpdvi.description.tables import Description
    from spatialpdvi.io.results.described import DescribedKeys

__all__ = ["describe", "describe_files"]


class _Choices(NamedTuple):
    """What the caller chose for all sections."""

    keys: Keys
    where: "DescribedKeys"
    layer: str | None
    gene_key: str | None
    n_genes: int
    n_perms: int
    seed: int
    memory: int | None = None


class _Part(NamedTuple):
    """What was found in one file."""

    sections: pd.DataFrame
    domains: pd.DataFrame
    contacts: pd.DataFrame
    composition: pd.DataFrame | None
    genes: pd.DataFrame | None
    means: np.ndarray | None  # (K, d) of the domains of the fit


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
    from spatialpdvi.io.results.described import DescribedKeys
    from spatialpdvi.io.results.writing import apply_elements

    progress = progress_of(progress)
    where = DescribedKeys(domain_key, spatial_key, sample_key, by, condition)
    choices = _Choices(Keys(key_added), where, layer, gene_key, n_genes, n_perms, seed)
    _check(choices, store=store)
    source = AnnDataSource(adata)
    if store:
        source.check_takes_results()
        check_free(source, choices.keys)
    found = _joined([_describe(source, "section", choices, progress)], choices)
    if store:
        apply_elements(adata, {("uns", choices.keys.description): found.stored(found.sections["section"])})
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
    from spatialpdvi.io.results.described import DescribedKeys
    from spatialpdvi.io.results.slim import check_number, opened_with_counts
    from spatialpdvi.io.results.writing import check_output, write_elements
    from spatialpdvi.io.storage.atomic import name_earlier
    from spatialpdvi.io.storage.locks import claimed

    if not paths:
        raise InputError("at least one fitted file", "none")
    progress = progress_of(progress)
    most = memory_limit(memory)
    where = DescribedKeys(domain_key, spatial_key, sample_key, by, condition)
    choices = _Choices(Keys(key_added), where, layer, gene_key, n_genes, n_perms, seed, most)
    _check(choices, store=store)
    locations = locate_all(paths)
    others = check_number(locations, counts)
    folder = None if output is None else check_folder(output, locations, command="describe")
    with claimed(*(locations if store else ()), folder):
        parts = []
        for location, other in zip(locations, others, strict=True):
            with opened_with_counts(location, other) as source:
                if store:
                    check_free(source, choices.keys)
                    check_output(location, location)
                parts.append(_describe(source, Path(location.name).stem, choices, progress))
        found = _joined(parts, choices)
        with name_earlier() as written:
            if folder is not None:
                with progress.stage("pictures"):
                    write_description(found, folder)
                written.append(folder)
            if store:
                with progress.stage("write"):
                    for location, part in zip(locations, parts, strict=True):
                        elements = {("uns", choices.keys.description): found.stored(part.sections["section"])}
                        write_elements(location, location, elements)
                        written.append(location)
    return found


def _check(choices: _Choices, *, store: bool) -> None:
    """Check what can be checked before anything is read."""
    from spatialpdvi.description.neighbourhoods import load_squidpy

    for name in ("n_genes", "n_perms"):
        read_kind(name, getattr(choices, name), int)
    if choices.n_genes < 0:
        raise InputError("at least 0", str(choices.n_genes), option="n_genes")
    if choices.n_perms < 2:
        raise InputError("at least 2", str(choices.n_perms), f"Give {option('n_perms', 1000)}.", option="n_perms")
    check_seed(choices.seed)
    if store and choices.where.domain_key is not None:
        raise InputError(
            f"no {option('domain_key')} with {option('store')}",
            repr(choices.where.domain_key),
            "Only the description of the fit's own domains is stored with the fit; write this one to a folder.",
        )
    load_squidpy()


def _describe(source: Source, name: str, choices: _Choices, progress: Progress) -> _Part:
    """Describe every section of a file."""
    from spatialpdvi.description.neighbourhoods import contact_table, section_graph
    from spatialpdvi.description.sizes import composition_table, domain_sizes, section_row
    from spatialpdvi.io.results.described import read_sections, shared_means
    from spatialpdvi.io.results.left_out import select_fitted

    if choices.where.domain_key is None:
        source = select_fitted(source, choices.keys)
    with progress.stage("read") as stage:
        sections = read_sections(source, choices.keys, choices.where, name=name)
        stage.note(f"{sum(section.spots.size for section in sections):,} spots of {name}")
    rows, sizes, contacts, composition, graphs = [], [], [], [], []
    with progress.stage("contacts") as stage:
        for done, section in enumerate(sections):
            stage.advance(done, len(sections))
            stage.note(section.name)
            graph, neighbours = section_graph(section)
            rows.append(section_row(section) | {"neighbours": neighbours})
            sizes.append(domain_sizes(section, rows[-1]["spot_area"]))
            contacts.append(contact_table(section, graph, n_perms=choices.n_perms, seed=choices.seed))
            graphs.append(graph)
            if section.types is not None:
                composition.append(composition_table(section))
    return _Part(
        sections=pd.DataFrame(rows),
        domains=pd.concat(sizes, ignore_index=True),
        contacts=pd.concat(contacts, ignore_index=True),
        composition=pd.concat(composition, ignore_index=True) if composition else None,
        genes=_genes(source, sections, graphs, choices, progress),
        means=shared_means(source, choices.keys) if choices.where.domain_key is None else None,
    )


def _genes(
    source: Source, sections: Sequence[Any], graphs: Sequence[Any], choices: _Choices, progress: Progress
) -> pd.DataFrame | None:
    """Test the genes of each domain of a file; None, and a warning, where it has no counts."""
    from spatialpdvi.description.genes import gene_table
    from spatialpdvi.io.results.expression import read_genes

    if not choices.n_genes:
        return None
    with progress.stage("genes"):
        try:
            counts, genes = read_genes(
                source, choices.keys, layer=choices.layer, gene_key=choices.gene_key, memory=choices.memory
            )
        except InputError as error:
            if choices.layer is not None or choices.gene_key is not None:
                raise
            text = f"No genes are tested. {error.sentence(option)} {option('n_genes', 0)} says that none are wanted."
            warnings.warn(InputWarning(text), stacklevel=5)
            return None
        return gene_table(counts, genes, sections, graphs, n_genes=choices.n_genes)


def _joined(parts: Sequence[_Part], choices: _Choices) -> "Description":
    """Return the tables of all files as one description, with the differences between conditions."""
    from spatialpdvi.description.differences import difference_table, group_sections, why_no_p
    from spatialpdvi.description.tables import Description

    def joined(tables: Iterator[pd.DataFrame | None]) -> pd.DataFrame | None:
        found = [table for table in tables if table is not None]
        return pd.concat(found, ignore_index=True) if found else None

    sections = pd.concat([part.sections for part in parts], ignore_index=True)
    _check_names(sections)
    domains = pd.concat([part.domains for part in parts], ignore_index=True)
    composition = joined(part.composition for part in parts)
    differences, reason = None, ""
    if choices.where.condition is not None:
        groups = group_sections(list(sections["condition"]))
        if len(groups.names) < 2:
            raise InputError(
                f"sections of at least two conditions in obs[{choices.where.condition!r}]",
                f"{len(sections)} of {groups.names[0]!r}",
                f"Name another column with {option('condition')}, give files of other conditions too, or name the "
                f"column of the sections with {option('sample_key')}.",
            )
        _warn_of_other_domains(parts)
        reason = why_no_p(groups)
        if reason:
            warnings.warn(InputWarning(reason), stacklevel=4)
        compared = [difference_table(domains, sections, groups, seed=choices.seed)]
        if composition is not None:
            compared.append(difference_table(composition, sections, groups, seed=choices.seed))
        differences = pd.concat(compared, ignore_index=True)
        if composition is not None:
            differences.insert(1, "type", differences.pop("type").fillna(""))
    return Description(
        sections=sections,
        domains=domains,
        contacts=pd.concat([part.contacts for part in parts], ignore_index=True),
        composition=composition,
        genes=joined(part.genes for part in parts),
        differences=differences,
        no_p_values=reason,
        params=_params(choices),
    )


def _check_names(sections: pd.DataFrame) -> None:
    repeated = sections["section"][sections["section"].duplicated()]
    if len(repeated):
        raise InputError(
            "sections with different names", f"{repeated.iloc[0]!r} twice", "Rename a file, or the sections in it."
        )


def _warn_of_other_domains(parts: Sequence[_Part]) -> None:
    """Warn where files are compared whose domains are not those of one fit."""
    means = [part.means for part in parts if part.means is not None]
    if all(np.array_equal(means[0], other) for other in means[1:]):
        return
    text = (
        "The files are not of one fit or model, so that domains of the same number have nothing in common, and their "
        "shares should not be compared. Fit the files together, or predict with one model."
    )
    warnings.warn(InputWarning(text), stacklevel=5)


def _params(choices: _Choices) -> dict[str, Any]:
    from spatialpdvi.version import library_versions

    return {
        "key_added": choices.keys.prefix,
        **choices.where._asdict(),
        "layer": choices.layer,
        "gene_key": choices.gene_key,
        "n_genes": choices.n_genes,
        "n_perms": choices.n_perms,
        "seed": choices.seed,
        "versions": library_versions("pandas", "squidpy"),
    }
