"""Intervals of the expression and the composition of the domains of a fitted section, in memory or on disk."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spatialpdvi.api.checked import checked_adata, checked_fit
from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.io.formats.sources import AnnDataSource, Source, select_spots, with_elements
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.section.counts import find_counts
from spatialpdvi.io.storage.paths import locate
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.options.validation import listed
from spatialpdvi.runtime.memory import memory_limit
from spatialpdvi.runtime.progress import Progress, progress_of

if TYPE_CHECKING:
    from anndata import AnnData

    from spatialpdvi.uncertainty.tables import Intervals

__all__ = ["check_intervals", "intervals", "intervals_file", "with_intervals"]


def intervals(
    adata: "AnnData",
    *,
    genes: Sequence[str] | str = (),
    n_genes: int = 3,
    contrasts: Sequence[tuple[str, str]] = (),
    by: str | None = None,
    of: str = "domain",
    method: str = "blocks",
    level: float = 0.9,
    seed: int = 0,
    key_added: str = "pdvi",
    spatial_key: str | None = None,
    sample_key: str | None = None,
    layer: str | None = None,
    gene_key: str | None = None,
    store: bool = False,
    progress: Progress | bool | None = None,
) -> "Intervals":
    """Compute credible intervals of the mean expression and the composition of domains, and of their contrasts.

    They are for the tissue of which the section is a sample: neighbouring spots are alike, counts vary more than
    Poisson counts, and spots may have been given to the wrong domain (docs/intervals.md). They come from the counts,
    which are not averaged over neighbours.

    Parameters
    ----------
    adata
        A fitted section with raw counts.
    genes
        Names, or one name; by default the ``n_genes`` first marker genes of each domain, which were chosen for large
        contrasts.
    n_genes
        Marker genes of each domain, where there are no ``genes``.
    contrasts
        Pairs of domains, (A, B) for how much higher a gene is in A than in B; by default all pairs.
    by
        Column of ``obs`` with the types whose share in each domain is given, such as cell types; by default the states
        that domains share, if they do.
    of
        "domain", or "state" for the cell states that domains share; a spot belongs to its likeliest state.
    method
        "blocks" (spatial blocks as independent units, and the uncertainty of domains), "bootstrap" (the same by 400
        replicates), "linear-response", "implicit" or "mean-field", which are for comparison: they are too sure.
    level
        Probability of the intervals, above 0 and below 1.
    seed
        Of the replicates of the bootstrap and the draws of ``implicit``; other methods have no random numbers.
    key_added
        Prefix of the keys that the fit wrote.
    spatial_key, sample_key
        The coordinates, and the column of ``obs`` with the section of each spot; by default those of the fit.
    layer
        Where the raw counts are; by default where the fit found them.
    gene_key
        Column of ``var`` with the gene names; by default the index of ``var``.
    store
        Whether to write the tables into ``uns['pdvi_intervals']`` too.
    progress
        True shows how far it is, as lines on stderr; by default nothing is shown.

    Returns
    -------
    Intervals
        The tables, as data frames.

    Raises
    ------
    InputError
        Where there is no fit or there are no counts, a gene, domain or column does not exist, or an option is out of
        its range.

    Examples
    --------
    >>> found = spv.intervals(adata, genes=[adata.var_names[0]], contrasts=[("0", "1")])
    >>> found.contrasts.columns.tolist()
    ['domain', 'other', 'gene', 'log2_fold_change', 'lower', 'upper']
    >>> bool((found.contrasts["lower"] < found.contrasts["upper"]).all())
    True
    """
    from spatialpdvi.io.results.writing import apply_elements
    from spatialpdvi.uncertainty.intervals import IntervalOptions, intervals_of

    progress, keys = progress_of(progress), Keys(key_added)
    options = IntervalOptions(
        genes=listed(genes),
        n_genes=n_genes,
        contrasts=listed(contrasts),
        by=by,
        of=of,
        method=method,
        level=level,
        seed=seed,
        spatial_key=spatial_key,
        sample_key=sample_key,
        layer=layer,
        gene_key=gene_key,
    )
    source = checked_adata(adata, keys, "intervals_file", store=store)
    with progress.stage("intervals") as stage:
        found = intervals_of(source, keys, options, stage)
    if store:
        apply_elements(adata, {("uns", keys.intervals): found.stored()})
    return found


def intervals_file(
    path: str | Path,
    *,
    genes: Sequence[str] | str = (),
    n_genes: int = 3,
    contrasts: Sequence[tuple[str, str]] = (),
    by: str | None = None,
    of: str = "domain",
    method: str = "blocks",
    level: float = 0.9,
    seed: int = 0,
    key_added: str = "pdvi",
    spatial_key: str | None = None,
    sample_key: str | None = None,
    layer: str | None = None,
    gene_key: str | None = None,
    output: str | Path | None = None,
    store: bool = False,
    memory: str | None = None,
    counts: str | Path | None = None,
    progress: Progress | bool | None = None,
) -> "Intervals":
    """Compute the intervals of a fitted file as `intervals` does.

    Parameters
    ----------
    path
        A fitted h5ad file or zarr store.
    genes, n_genes, contrasts, by, of, method, level, seed, key_added, spatial_key, sample_key, layer, gene_key
        As for `intervals`.
    output
        Folder for the tables as CSV and a picture, ``intervals.png``; it is made if it does not exist. Those of earlier
        intervals in it are replaced, or removed where there is no such table any more.
    store
        Whether to write the tables into the file too, all or nothing.
    memory
        Memory that the counts may use, such as "8GB", where marker genes are sought; by default all free memory.
        Counts that need more, with their copies, are read block by block, as they always are for named genes.
    counts
        A file with the counts of the same spots, for a result that was written with ``slim``; by default the counts are
        in ``path``.
    progress
        True shows the stages as lines on stderr; by default nothing is shown.

    Returns
    -------
    Intervals
        The tables, as data frames.

    Raises
    ------
    InputError
        As for `intervals`, or where a file cannot be used.

    Examples
    --------
    >>> found = spv.intervals_file("fitted.h5ad", n_genes=1, store=True)
    >>> "pdvi_intervals" in anndata.read_h5ad("fitted.h5ad").uns
    True
    """
    from spatialpdvi.api.folders import check_folder, write_intervals
    from spatialpdvi.io.results.writing import write_elements
    from spatialpdvi.io.storage.disk import name_earlier
    from spatialpdvi.io.storage.locks import claimed
    from spatialpdvi.uncertainty.intervals import IntervalOptions, intervals_of

    progress, keys = progress_of(progress), Keys(key_added)
    options = IntervalOptions(
        genes=listed(genes),
        n_genes=n_genes,
        contrasts=listed(contrasts),
        by=by,
        of=of,
        method=method,
        level=level,
        seed=seed,
        spatial_key=spatial_key,
        sample_key=sample_key,
        layer=layer,
        gene_key=gene_key,
        memory=memory_limit(memory),
    )
    location = locate(path)
    folder = None if output is None else check_folder(output, [location], command="intervals")
    with claimed(location if store else None, folder):
        with progress.stage("intervals") as stage, checked_fit(location, counts, keys, store=store) as source:
            found = intervals_of(source, keys, options, stage)
        with name_earlier() as written:
            if folder is not None:
                with progress.stage("pictures"):
                    write_intervals(found, folder)
                written.append(folder)
            if store:
                with progress.stage("write"):
                    write_elements(location, location, {("uns", keys.intervals): found.stored()})
    return found


def check_intervals(source: Source, options: FitOptions, kept: np.ndarray | None) -> None:
    """Raise before a fit whose intervals could not be computed, since the spots that it keeps (n,) have no counts."""
    if kept is not None:
        source = select_spots(source, np.flatnonzero(kept))
    advice = f"Intervals come from counts. Name the layer that has them, or leave {option('intervals', True)} out."
    # features that are given do without counts, which are then searched for as after the fit
    find_counts(source, options.layer if options.rep is None else None, memory=0, advice=advice)


def with_intervals(
    source: Source,
    elements: dict[tuple[str, str], Any],
    keys: Keys,
    memory: str | None,
    *,
    remove: Sequence[tuple[str, str]],
    progress: Progress,
) -> dict[tuple[str, str], Any]:
    """Return the elements of a fit with its default intervals, which are those that are stored after the fit.

    A fit for which there are no intervals is not lost: a warning says why.
    """
    from spatialpdvi.io.results.expression import memory_after_fit
    from spatialpdvi.io.results.left_out import select_fitted
    from spatialpdvi.uncertainty.intervals import IntervalOptions, intervals_of

    with progress.stage("intervals"):
        try:
            fitted = select_fitted(with_elements(source, elements, remove=remove), keys)
            most = memory_limit(memory)
            if not isinstance(source, AnnDataSource):  # whose counts are in memory already
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", InputWarning)  # the fit has given them
                    most = memory_after_fit(fitted, elements["uns", keys.uns], most)
            found = intervals_of(fitted, keys, IntervalOptions(memory=most))
        except InputError as error:
            warnings.warn(InputWarning(f"The fit is stored without intervals. {error.sentence(option)}"), stacklevel=4)
            return elements
    return {**elements, ("uns", keys.intervals): found.stored()}
