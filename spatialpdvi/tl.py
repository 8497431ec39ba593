"""Tools for an AnnData in memory, called as those of scanpy and squidpy are: ``spatialpdvi.tl.domains(adata, 7)``.

They write into ``adata`` and return nothing; with ``copy=True`` they leave it as it is and return a copy with the
result. `spatialpdvi.fit` and `spatialpdvi.predict` do the same and return the result itself.

What other functions of the package call ``k``, ``sample_key`` and ``n`` is ``n_domains``, ``library_key`` and
``n_genes`` here, in errors and warnings too.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from spatialpdvi import api
from spatialpdvi.api.signature import spell_out
from spatialpdvi.errors import InputError, option, own_names
from spatialpdvi.model import Model
from spatialpdvi.options.fit import OF_A_SECTION
from spatialpdvi.runtime.progress import Progress

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["describe", "domains", "intervals", "markers", "predict", "transfer"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _named(**names: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator for a function that has names of its own for arguments of `spatialpdvi.api`.

    Errors and warnings use its own names, and an argument by its name in `spatialpdvi.api` is refused.

    Parameters
    ----------
    names
        Its own name of each argument, by the one in `spatialpdvi.api`.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            for other, own in names.items():
                if other in kwargs:
                    advice = f"This function calls it {option(own)}."
                    raise InputError(f"the argument {option(own)}", option(other), advice)
            with own_names(names):
                return function(*args, **kwargs)

        return call

    return decorate


def _target(adata: "AnnData", *, copy: bool) -> "AnnData":
    """The object to write into: this one, or a copy."""
    if not hasattr(adata, "isbacked"):
        return adata  # the function that is called refuses what is no AnnData
    if copy and adata.isbacked:
        advice = f"Copy it into memory with `adata.to_memory()`, and leave {option('copy')} out."
        raise InputError(f"an AnnData in memory with {option('copy', True)}", "one that is backed by a file", advice)
    return adata.copy() if copy else adata


@_named(k="n_domains", sample_key="library_key")
@spell_out(without=("k", "sample_key"))
def domains(
    adata: "AnnData",
    n_domains: int | str,
    *,
    mask: str | None = None,
    library_key: str | None = None,
    key_added: str = "pdvi",
    copy: bool = False,
    preset: str | None = None,
    intervals: bool = False,
    progress: Progress | bool | None = None,
    **options: Any,
) -> "AnnData | None":
    """Find the spatial domains of a section and write them into its obs, obsm and uns (docs/outputs.md).

    Parameters
    ----------
    adata
        A section of n spots, with raw counts in a layer, X or raw.X and coordinates (n, 2) or (n, 3), in any unit, in
        ``obsm['spatial']``.
    n_domains
        Number of domains, K. For ``"4:15"`` or ``"auto"`` a number is chosen.
    mask
        Column of ``obs`` that is true for the spots to fit. The others have no domain.
    library_key
        Column of ``obs`` that names the section of each spot. All sections share one set of domains.
    key_added
        Prefix of the keys that are written.
    copy
        Whether to return a copy with the result instead of writing into ``adata``.
    preset
        Name of a set of options, of which those that are given win (`spatialpdvi.preset_options`).
    intervals
        Whether to write credible intervals of the domains' marker genes and composition too, as `intervals` does.
    progress
        True shows the stages as lines on stderr; by default nothing is shown.
    options
        Every option of `spatialpdvi.FitOptions`.

    Returns
    -------
    None, or the copy.

    Raises
    ------
    InputError
        Where the data or an option cannot be used; ``adata`` is then unchanged.

    Examples
    --------
    >>> spv.tl.domains(adata, n_domains=3, n_top_genes=60, n_init=1)
    >>> adata.obs["pdvi_domain"].cat.categories.tolist()
    ['0', '1', '2']
    """
    adata = _target(adata, copy=copy)
    api.fit(
        adata,
        k=n_domains,
        preset=preset,
        intervals=intervals,
        progress=progress,
        mask=mask,
        sample_key=library_key,
        key_added=key_added,
        **options,
    )
    return adata if copy else None


@_named(sample_key="library_key")
@spell_out(only=(*OF_A_SECTION, "save_graph"), without=("sample_key",))
def predict(
    adata: "AnnData",
    model: str | Path | Model,
    *,
    mask: str | None = None,
    library_key: str | None = None,
    key_added: str = "pdvi",
    copy: bool = False,
    correct: str | None = None,
    memory: str | None = None,
    progress: Progress | bool | None = None,
    **options: Any,
) -> "AnnData | None":
    """Find the domains of a model in another section.

    Parameters
    ----------
    adata
        A section of n spots with coordinates, and with raw counts or the features that the model was fitted on.
    model
        A model that `spatialpdvi.save_model` wrote, or the ``model`` of a `spatialpdvi.FitResult`.
    mask, library_key, key_added, copy, progress
        As for `domains`.
    correct
        Correction of differences to the sections of the fit: "none", or "center", which subtracts the section's mean
        from its components; by default what the fit did.
    memory
        Memory that the counts may use, such as "8GB"; by default all free memory.
    options
        Options of a fit that describe the section.

    Returns
    -------
    None, or the copy.

    Raises
    ------
    InputError
        Where the model, the data or an option cannot be used; ``adata`` is then unchanged.

    Examples
    --------
    >>> spv.tl.predict(other, "model.npz")
    >>> other.obs["pdvi_domain"].cat.categories.tolist()
    ['0', '1', '2']
    """
    adata = _target(adata, copy=copy)
    api.predict(
        adata,
        model=model,
        progress=progress,
        mask=mask,
        sample_key=library_key,
        key_added=key_added,
        correct=correct,
        memory=memory,
        **options,
    )
    return adata if copy else None


@_named(sample_key="library_key")
def transfer(
    adata: "AnnData",
    fitted: "AnnData",
    *,
    library_key: str | None = None,
    key_added: str = "pdvi",
    copy: bool = False,
    new_key: str | None = None,
    borders: str = "spots",
    max_distance: float | None = None,
    scale: float = 1.0,
    spatial_key: str | None = None,
    label_key: str | None = None,
    progress: Progress | bool | None = None,
) -> "AnnData | None":
    """Carry the domains of a fitted section to other spots of the same section, by place (docs/transfer.md).

    Parameters
    ----------
    adata
        n spots with coordinates in the unit of the fitted section: bins of another size, or cells.
    fitted
        With the result of a fit.
    library_key
        Column of ``obs`` of ``adata`` that names the section of each spot; by default that of the fit.
    key_added
        Prefix of the keys that the fit wrote.
    copy
        Whether to return a copy with the result instead of writing into ``adata``.
    new_key
        Prefix of the keys that are written; by default that of the fit.
    borders
        "spots": each spot has the domain of the nearest fitted spot. "smooth": it has the domain with the largest
        interpolated posterior.
    max_distance
        Largest distance from the nearest fitted spot, in the unit of the fit's coordinates; spots that are farther have
        no domain. By default it is the median distance of a fitted spot to its fourth neighbour.
    scale
        Factor that brings the coordinates of ``adata`` to the unit of the fit, such as pixels per micrometre.
    spatial_key
        Coordinates of ``adata``; by default under the name that the fit was given.
    label_key
        Column of ``obs`` with known labels to score by; by default ``annotation``, if there is one.
    progress
        True shows the stages as lines on stderr; by default nothing is shown.

    Returns
    -------
    None, or the copy.

    Raises
    ------
    InputError
        Where there is no fit, or sections or coordinates do not match; ``adata`` is then unchanged.

    Examples
    --------
    >>> spv.tl.transfer(other, adata)
    >>> other.obs["pdvi_domain"].cat.categories.tolist()
    ['0', '1', '2']
    """
    adata = _target(adata, copy=copy)
    api.transfer(
        fitted,
        adata,
        key_added=key_added,
        new_key=new_key,
        borders=borders,
        max_distance=max_distance,
        scale=scale,
        spatial_key=spatial_key,
        sample_key=library_key,
        label_key=label_key,
        progress=progress,
    )
    return adata if copy else None


@_named(n="n_genes")
def markers(
    adata: "AnnData",
    n_genes: int = 10,
    *,
    of: str = "domain",
    key_added: str = "pdvi",
    layer: str | None = None,
    gene_key: str | None = None,
    copy: bool = False,
    progress: Progress | bool | None = None,
) -> "AnnData | None":
    """Find the marker genes of each domain, or of each cell state, and write them into ``uns['pdvi_markers']``.

    Parameters
    ----------
    adata
        A fitted section with raw counts.
    n_genes
        Largest number of genes per domain.
    of
        "domain", or "state" for the cell states that domains share; these are written into
        ``uns['pdvi_state_markers']``.
    key_added
        Prefix of the keys that the fit wrote.
    layer
        Where the counts are; by default where the fit found them.
    gene_key
        Column of ``var`` with the gene names to show; by default the index of ``var``.
    copy, progress
        As for `domains`.

    Returns
    -------
    None, or the copy.

    Raises
    ------
    InputError
        Where the section has no fit or no counts, or its domains share no states.

    Examples
    --------
    >>> spv.tl.markers(adata, n_genes=2)
    >>> sorted(adata.uns["pdvi_markers"])[:3]
    ['domain', 'gene', 'log_fold_change']
    """
    adata = _target(adata, copy=copy)
    api.markers(
        adata, n=n_genes, of=of, key_added=key_added, layer=layer, gene_key=gene_key, store=True, progress=progress
    )
    return adata if copy else None


@_named(sample_key="library_key")
def describe(
    adata: "AnnData",
    *,
    by: str | None = None,
    library_key: str | None = None,
    key_added: str = "pdvi",
    spatial_key: str | None = None,
    layer: str | None = None,
    gene_key: str | None = None,
    n_genes: int = 100,
    n_perms: int = 1000,
    seed: int = 0,
    copy: bool = False,
    progress: Progress | bool | None = None,
) -> "AnnData | None":
    """Describe the domains of a fitted section, and write the tables into ``uns['pdvi_describe']`` (docs/describe.md).

    `spatialpdvi.describe` returns the tables, and compares conditions.

    Parameters
    ----------
    adata
        A fitted section.
    by
        Column of ``obs`` with the types whose share in each domain is counted, such as cell types.
    library_key, spatial_key
        The column of ``obs`` with the section of each spot, and the coordinates; by default those of the fit.
    key_added
        Prefix of the keys that the fit wrote.
    layer, gene_key
        As for `markers`.
    n_genes
        Largest number of genes that are tested in a domain; 0 for none.
    n_perms
        Number of times that the domains are shuffled for the z of contacts.
    seed
        Of the shuffles.
    copy, progress
        As for `domains`.

    Returns
    -------
    None, or the copy.

    Raises
    ------
    InputError
        Where squidpy is not installed, there is no fit, or a column or option cannot be used.

    Examples
    --------
    >>> spv.tl.describe(adata, n_genes=5)
    >>> sorted(adata.uns["pdvi_describe"])
    ['contacts', 'domains', 'genes', 'params', 'sections']
    """
    adata = _target(adata, copy=copy)
    api.describe(
        adata,
        by=by,
        sample_key=library_key,
        key_added=key_added,
        spatial_key=spatial_key,
        layer=layer,
        gene_key=gene_key,
        n_genes=n_genes,
        n_perms=n_perms,
        seed=seed,
        store=True,
        progress=progress,
    )
    return adata if copy else None


@_named(sample_key="library_key")
def intervals(
    adata: "AnnData",
    genes: Sequence[str] | str = (),
    *,
    n_genes: int = 3,
    contrasts: Sequence[tuple[str, str]] = (),
    by: str | None = None,
    of: str = "domain",
    method: str = "blocks",
    level: float = 0.9,
    seed: int = 0,
    library_key: str | None = None,
    key_added: str = "pdvi",
    spatial_key: str | None = None,
    layer: str | None = None,
    gene_key: str | None = None,
    copy: bool = False,
    progress: Progress | bool | None = None,
) -> "AnnData | None":
    """Compute intervals of the domains' expression and composition, and write them into ``uns['pdvi_intervals']``.

    `spatialpdvi.intervals` returns the tables (docs/intervals.md).

    Parameters
    ----------
    adata
        A fitted section with raw counts.
    genes
        Names, or one name; by default the ``n_genes`` first marker genes of each domain.
    n_genes
        Marker genes of each domain, where there are no ``genes``.
    contrasts
        Pairs of domains that are compared; by default all.
    by
        Column of ``obs`` with the types whose share in each domain is given; by default the states that domains share.
    of
        "domain", or "state" for the cell states that domains share.
    method
        "blocks", "bootstrap", "linear-response", "implicit" or "mean-field".
    level
        Probability of the intervals.
    seed
        Of the bootstrap and the draws of ``implicit``.
    library_key, spatial_key
        The column of ``obs`` with the section of each spot, and the coordinates; by default those of the fit.
    key_added
        Prefix of the keys that the fit wrote.
    layer
        Where the counts are; by default where the fit found them.
    gene_key
        Column of ``var`` with the gene names; by default the index of ``var``.
    copy
        Whether to return a copy with the result instead of writing into ``adata``.
    progress
        True shows how far it is, as lines on stderr; by default nothing is shown.

    Returns
    -------
    None, or the copy.

    Raises
    ------
    InputError
        Where there is no fit or there are no counts, a gene, domain or column does not exist, or an option is out of
        its range.

    Examples
    --------
    >>> spv.tl.intervals(adata, n_genes=1)
    >>> sorted(adata.uns["pdvi_intervals"])
    ['contrasts', 'expression', 'params']
    """
    adata = _target(adata, copy=copy)
    api.intervals(
        adata,
        genes=genes,
        n_genes=n_genes,
        contrasts=contrasts,
        by=by,
        of=of,
        method=method,
        level=level,
        seed=seed,
        sample_key=library_key,
        key_added=key_added,
        spatial_key=spatial_key,
        layer=layer,
        gene_key=gene_key,
        store=True,
        progress=progress,
    )
    return adata if copy else None
