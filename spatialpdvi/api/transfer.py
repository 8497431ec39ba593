"""Carry the domains of a fitted section to other spots of it, by place."""

from pathlib import Path
from typing import TYPE_CHECKING

from spatialpdvi.api.checked import checked_adata, checked_file
from spatialpdvi.errors import InputError, option, own_names
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.storage.paths import locate, output_of
from spatialpdvi.runtime.progress import Progress, progress_of

if TYPE_CHECKING:
    from anndata import AnnData

    from spatialpdvi.prediction.transfer import TransferResult

__all__ = ["transfer", "transfer_file"]


def transfer(
    fitted: "AnnData",
    adata: "AnnData",
    *,
    key_added: str = "pdvi",
    new_key: str | None = None,
    borders: str = "spots",
    max_distance: float | None = None,
    scale: float = 1.0,
    spatial_key: str | None = None,
    sample_key: str | None = None,
    label_key: str | None = None,
    progress: Progress | bool | None = None,
) -> "TransferResult":
    """Carry the domains of a fitted section to other spots of the same section, by place (docs/transfer.md).

    Bins of another size or segmented cells, in the same coordinates, take the domains of the spots where they lie.
    Their expression is not used.

    Parameters
    ----------
    fitted
        With the result of a fit.
    adata
        n spots with coordinates in the same unit; the domains are written into it.
    key_added
        Prefix of the keys that the fit wrote.
    new_key
        Prefix of the keys that are written; by default that of the fit.
    borders
        "spots": each spot has the domain of the nearest fitted spot, which for a bin of the fit is the bin that it lies
        in. "smooth": it has the domain with the largest interpolated posterior, so that borders run between spots.
    max_distance
        Largest distance from the nearest fitted spot, in the unit of the fit's coordinates; spots that are farther have
        no domain. By default it is the median distance of a fitted spot to its fourth neighbour, which is the spacing
        of a lattice.
    scale
        Factor that brings the coordinates of ``adata`` to the unit of the fit, such as pixels per micrometre.
    spatial_key, sample_key
        Coordinates of ``adata``, and its column of ``obs`` with the section of each spot; by default under the names
        that the fit was given. Sections are matched by name.
    label_key
        Column of ``obs`` with known labels to score by; by default ``annotation``, if there is one.
    progress
        True shows the stages as lines on stderr; by default nothing is shown.

    Returns
    -------
    TransferResult
        Domains (n,), posteriors (n, K) and a table of the sections.

    Raises
    ------
    InputError
        Where there is no fit, sections or coordinates do not match, or an option cannot be used; ``adata`` is then
        unchanged.

    Examples
    --------
    >>> cells = other.copy()
    >>> cells.obsm["spatial"] += 0.1
    >>> result = spv.transfer(adata, cells)
    >>> cells.obs["pdvi_domain"].cat.categories.tolist()
    ['0', '1', '2']
    """
    from spatialpdvi.io.results.writing import apply_elements
    from spatialpdvi.prediction.transfer import OF_RESULT, TransferOptions, carry_domains, read_fitted_domains

    progress = progress_of(progress)
    options = TransferOptions(
        key_added=key_added,
        new_key=new_key,
        borders=borders,
        max_distance=max_distance,
        scale=scale,
        spatial_key=spatial_key,
        sample_key=sample_key,
        label_key=label_key,
    )
    if fitted is adata and options.keys == options.new_keys:
        raise InputError("two AnnData", "the same twice", f"Give {option('new_key')} to write beside the fit.")
    with own_names(OF_RESULT):
        target = checked_adata(adata, options.new_keys, "transfer_file")
    with progress.stage("read"):
        fit = read_fitted_domains(AnnDataSource(fitted, "transfer_file"), options, name="")
    result, elements = carry_domains(fit, target, options, progress)
    apply_elements(adata, elements, remove=options.new_keys.pairs_in(target))
    return result


def transfer_file(
    path: str | Path,
    to: str | Path,
    *,
    output: str | Path | None = None,
    key_added: str = "pdvi",
    new_key: str | None = None,
    borders: str = "spots",
    max_distance: float | None = None,
    scale: float = 1.0,
    spatial_key: str | None = None,
    sample_key: str | None = None,
    label_key: str | None = None,
    progress: Progress | bool | None = None,
) -> "TransferResult":
    """Carry the domains of a fitted file to the spots of another one, and write them into it, as `transfer` does.

    Counts are not read.

    Parameters
    ----------
    path
        A fitted h5ad file or zarr store.
    to
        An h5ad file or zarr store of other spots of the same section.
    output
        Where a copy of ``to`` with the domains is written; by default ``to`` itself is updated, all or nothing.
    key_added, new_key, borders, max_distance, scale, spatial_key, sample_key, label_key, progress
        As for `transfer`.

    Returns
    -------
    The result that `transfer` returns.

    Raises
    ------
    InputError
        Where a file cannot be used, there is no fit, or sections or coordinates do not match; nothing is written then.

    Examples
    --------
    >>> result = spv.transfer_file("fitted.h5ad", "other.h5ad", output="carried.h5ad")
    >>> "pdvi_domain" in anndata.read_h5ad("carried.h5ad").obs
    True
    """
    from spatialpdvi.io.formats.h5ad import H5adSource
    from spatialpdvi.io.results.writing import write_elements
    from spatialpdvi.io.storage.locks import claimed
    from spatialpdvi.io.storage.outputs import check_distinct
    from spatialpdvi.prediction.transfer import OF_RESULT, TransferOptions, carry_domains, read_fitted_domains

    progress = progress_of(progress)
    options = TransferOptions(
        key_added=key_added,
        new_key=new_key,
        borders=borders,
        max_distance=max_distance,
        scale=scale,
        spatial_key=spatial_key,
        sample_key=sample_key,
        label_key=label_key,
    )
    source_path, target_path = locate(path), locate(to)
    written = output_of(target_path, output)
    if options.keys == options.new_keys or output is not None:
        check_distinct(written, "to" if output is None else "output", (source_path,))
    with claimed(written):
        with progress.stage("read") as stage:
            with H5adSource(source_path) as source:
                fit = read_fitted_domains(source, options, name=Path(source_path.name).name)
            stage.note(f"{fit.stored.codes.size:,} fitted spots, {len(fit.stored.names)} domains")
        with own_names(OF_RESULT), checked_file(target_path, written, options.new_keys) as target:
            result, elements = carry_domains(fit, target, options, progress)
            stale, spots = options.new_keys.pairs_in(target), target.digest()
        with progress.stage("write"):
            write_elements(target_path, written, elements, remove=stale, spots=spots)
    return result
