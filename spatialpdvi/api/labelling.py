"""Edit the domains of a fit, in memory or on disk: rename, merge, split, take apart, and unite to coarser levels."""

from pathlib import Path
from typing import TYPE_CHECKING

from spatialpdvi.editing.edits import Edit, check_edit
from spatialpdvi.errors import option, own_names
from spatialpdvi.io.formats.sources import AnnDataSource, Source
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.storage.paths import locate, output_of
from spatialpdvi.runtime.memory import parse_size
from spatialpdvi.runtime.progress import Progress, progress_of

if TYPE_CHECKING:
    from anndata import AnnData
    from pandas import DataFrame

    from spatialpdvi.editing.changes import Changes
    from spatialpdvi.io.results.stored import StoredFit

__all__ = ["label", "label_file"]

# an edit has no options for what the fit has read
_NAMES = {
    "spatial_key": None,
    f"Name yours with {option('spatial_key')}.": "The fit has read them: put them back.",
    f"Name the columns, or a key of obsm, with {option('spatial_key')}.": "The fit has read them: put them back.",
    f"Name one of these with {option('sample_key')}.": "The fit has read it: put it back.",
}


def label(
    adata: "AnnData", edit: Edit, *, key_added: str = "pdvi", progress: Progress | bool | None = None
) -> "DataFrame":
    """Edit the domains of a fitted section, with everything that is stored for each domain (docs/editing.md).

    Posteriors sum to 1 afterwards, too. Certificate, trace and parameters stay those of the fit before the edit, and
    ``uns['pdvi']['edits']`` lists what was done. ``obs['pdvi_domain_fitted']`` keeps the domains of the fit. Marker
    genes and coarser levels of domains that are no longer there are removed, with a warning.

    Parameters
    ----------
    adata
        A fitted section; it is changed in place.
    edit
        A `Rename`, `Merge`, `Split`, `Pieces` or `Levels`.
    key_added
        Prefix of the keys that the fit wrote.
    progress
        True shows the stages as lines on stderr; by default nothing is shown.

    Returns
    -------
    A row for each domain: its name ``domain``, ``spots``, their mean ``confidence``, and ``fitted``, the domains of the
    fit that its spots had. For `Levels` a row for each step: ``n_domains`` after it, the names of the two that were
    united, ``first`` and ``second``, and the ``rise`` of F in nats.

    Raises
    ------
    InputError
        Where there is no fit, or the edit does not suit its domains; ``adata`` is then unchanged.

    Examples
    --------
    >>> table = spv.label(adata, spv.Merge(["1", "2"], name="Cortex"))
    >>> table["fitted"].tolist()
    ['0', '1+2']
    >>> bool(np.allclose(adata.obsm["pdvi_posterior"].sum(axis=1), 1))
    True
    """
    from spatialpdvi.io.results.writing import apply_elements

    check_edit(edit)
    source = AnnDataSource(adata, "label_file")
    source.check_takes_results()
    changes = _changes(source, Keys(key_added), edit, progress_of(progress))
    apply_elements(adata, changes.elements, remove=changes.remove)
    return changes.table


def label_file(
    path: str | Path,
    edit: Edit,
    *,
    output: str | Path | None = None,
    key_added: str = "pdvi",
    memory: str | None = None,
    progress: Progress | bool | None = None,
) -> "DataFrame":
    """Edit the domains of a fitted file as `label` does.

    Parameters
    ----------
    path
        A fitted h5ad file or zarr store.
    edit, key_added, progress
        As for `label`.
    output
        Where a copy with the edited domains is written; by default the file itself is updated, all or nothing.
    memory
        Memory that counts may use, such as "8GB", where a domain is split; by default all free memory.

    Returns
    -------
    The table that `label` returns.

    Raises
    ------
    InputError
        Where the file cannot be used, has no fit, or the edit does not suit its domains; nothing is written then.

    Examples
    --------
    >>> table = spv.label_file("fitted.h5ad", spv.Rename(from_key="annotation"), output="named.h5ad")
    >>> anndata.read_h5ad("named.h5ad").obs["pdvi_domain"].cat.categories.tolist() == table["domain"].tolist()
    True
    """
    from spatialpdvi.io.formats.h5ad import H5adSource
    from spatialpdvi.io.results.writing import check_output, write_elements
    from spatialpdvi.io.storage.locks import claimed

    check_edit(edit)
    if memory is not None:
        parse_size(memory)  # only a split needs it
    progress, keys, location = progress_of(progress), Keys(key_added), locate(path)
    target = output_of(location, output)
    with claimed(target):
        with H5adSource(location) as source:
            check_output(location, target)
            changes, spots = _changes(source, keys, edit, progress, memory=memory), source.digest()
        with progress.stage("write"):
            write_elements(location, target, changes.elements, remove=changes.remove, spots=spots)
    return changes.table


@own_names(_NAMES)
def _changes(source: Source, keys: Keys, edit: Edit, progress: Progress, *, memory: str | None = None) -> "Changes":
    """Read a fit, edit it, and return what is to be written."""
    from spatialpdvi.editing.changes import edit_domains
    from spatialpdvi.io.results.left_out import fitted_spots, on_all_spots, select_fitted
    from spatialpdvi.io.results.stored import read_stored

    kept = fitted_spots(source, keys)
    if kept is not None:
        changes = _changes(select_fitted(source, keys), keys, edit, progress, memory=memory)
        return changes._replace(elements=on_all_spots(changes.elements, kept))
    with progress.stage("read") as stage:
        fit = _with_valid_colours(read_stored(source, keys))
        stage.note(f"{fit.codes.size:,} spots, {len(fit.names)} domains")
    return edit_domains(source, keys, fit, edit, progress, memory=memory)


def _with_valid_colours(fit: "StoredFit") -> "StoredFit":
    """Return the fit with its colours as hexadecimal numbers; the user may have stored any that matplotlib knows."""
    from spatialpdvi.plotting.labels import check_colours

    if fit.colours is None:
        return fit
    return fit._replace(colours=tuple(check_colours(dict(zip(fit.names, fit.colours, strict=True)), fit.names)))
