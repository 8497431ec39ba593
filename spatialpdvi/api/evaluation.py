"""Score the domains of a section, whichever method found them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spatialpdvi.io.formats.sources import AnnDataSource, Source

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["evaluate", "evaluate_file"]


def evaluate(
    adata: "AnnData", *, label_key: str = "annotation", domain_key: str = "pdvi_domain", spatial_key: str = "spatial"
) -> dict[str, Any]:
    """Score domains against known labels, and for their spatial coherence.

    Parameters
    ----------
    adata
        A section with n spots.
    label_key
        Column of ``obs`` with the known labels; spots may be unlabelled.
    domain_key
        Column of ``obs`` with the domains to score; each spot needs one, but for those that a fit has left out, which
        are not scored.
    spatial_key
        Key in ``obsm`` of the coordinates, (n, 2) or (n, 3) in any unit.

    Returns
    -------
    ``chaos`` and ``pas``, which measure spatial coherence over all spots (lower is better), and ``ari``, ``nmi``,
    ``homogeneity`` and ``completeness`` over the labelled spots (1 is best). ``n_spots`` and ``n_scored`` are the
    numbers of all spots and of labelled ones.

    Raises
    ------
    InputError
        Where a key is missing, or a spot that was not left out has no domain.

    Examples
    --------
    >>> scores = spv.evaluate(adata)
    >>> scores["ari"] > 0.5
    True
    """
    return _evaluate(AnnDataSource(adata), label_key, domain_key, spatial_key)


def evaluate_file(
    path: str | Path, *, label_key: str = "annotation", domain_key: str = "pdvi_domain", spatial_key: str = "spatial"
) -> dict[str, Any]:
    """Score the domains in a file as `evaluate` does. Only the two columns and the coordinates are read.

    Parameters
    ----------
    path
        An h5ad file or a zarr store.
    label_key, domain_key, spatial_key
        As for `evaluate`.

    Returns
    -------
    The scores that `evaluate` returns.

    Raises
    ------
    InputError
        Where the file cannot be read, a key is missing, or a spot that was not left out has no domain.

    Examples
    --------
    >>> from spatialpdvi.api import evaluate_file
    >>> evaluate_file("fitted.h5ad") == spv.evaluate(adata, label_key="annotation")
    True
    """
    from spatialpdvi.io.formats.h5ad import H5adSource

    with H5adSource(path) as source:
        return _evaluate(source, label_key, domain_key, spatial_key)


def _evaluate(source: Source, label_key: str, domain_key: str, spatial_key: str) -> dict[str, Any]:
    from spatialpdvi.io.results.keys import Keys
    from spatialpdvi.io.results.left_out import select_fitted
    from spatialpdvi.io.section.coordinates import read_coordinates
    from spatialpdvi.io.section.labels import read_domains, read_labels
    from spatialpdvi.metrics.clustering import domain_scores

    prefix = domain_key.removesuffix("_domain")
    if prefix != domain_key and prefix in source.uns_keys():  # a fit, which may have left spots out
        source = select_fitted(source, Keys(prefix))
    labels, _ = read_labels(source, label_key)
    domains = read_domains(source, domain_key)
    return domain_scores(domains, read_coordinates(source, spatial_key), labels=labels)
