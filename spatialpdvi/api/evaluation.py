"""Score the domains of a section, whichever method found them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spatialpdvi.io.formats.sources import AnnDataSource, Source

if TYPE_CHECKING:
    from anndata import AnnData

    from spatialpdvi.io.results.keys import Keys

__all__ = ["evaluate", "evaluate_file"]


def evaluate(
    adata: "AnnData",
    *,
    label_key: str = "annotation",
    domain_key: str = "pdvi_domain",
    spatial_key: str | None = None,
    sample_key: str | None = None,
) -> dict[str, Any]:
    """Score domains against known labels, and for their spatial coherence.

    Parameters
    ----------
    adata
        A section with n spots.
    label_key
        Column of ``obs`` with the known labels; spots may be unlabelled.
    domain_key
        Column of ``obs`` with the domains to score; each spot needs one. In the columns of a fit (``pdvi_domain``,
        ``pdvi_domain_fitted``, ``pdvi_domain_L4``) the spots that it has left out need none, and are not scored.
    spatial_key
        Key in ``obsm`` of the coordinates, (n, 2) or (n, 3) in any unit; by default that of the fit whose domains are
        scored, and ``spatial`` for other domains.
    sample_key
        Column of ``obs`` with the section of each spot; by default that of the fit whose domains are scored, and one
        section for other domains.

    Returns
    -------
    ``chaos`` and ``pas``, which measure spatial coherence over all spots (lower is better), and ``ari``, ``nmi``,
    ``homogeneity`` and ``completeness`` over the labelled spots (1 is best). ``n_spots`` and ``n_scored`` are the
    numbers of all spots and of labelled ones. ``chaos`` and ``pas`` of several sections are means over spots of those
    of each section.

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
    return _evaluate(AnnDataSource(adata, "evaluate_file"), label_key, domain_key, spatial_key, sample_key)


def evaluate_file(
    path: str | Path,
    *,
    label_key: str = "annotation",
    domain_key: str = "pdvi_domain",
    spatial_key: str | None = None,
    sample_key: str | None = None,
) -> dict[str, Any]:
    """Score the domains in a file as `evaluate` does. Counts are not read.

    Parameters
    ----------
    path
        An h5ad file or a zarr store.
    label_key, domain_key, spatial_key, sample_key
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
    >>> spv.evaluate_file("fitted.h5ad") == spv.evaluate(adata, label_key="annotation")
    True
    """
    from spatialpdvi.io.formats.h5ad import H5adSource

    with H5adSource(path) as source:
        return _evaluate(source, label_key, domain_key, spatial_key, sample_key)


def _evaluate(
    source: Source, label_key: str, domain_key: str, spatial_key: str | None, sample_key: str | None
) -> dict[str, Any]:
    from spatialpdvi.io.results.left_out import select_fitted
    from spatialpdvi.io.results.summary import sample_key_of_fit, spatial_key_of_fit
    from spatialpdvi.io.section.labels import read_domains
    from spatialpdvi.io.section.section import read_section
    from spatialpdvi.metrics.section import scores_by_section
    from spatialpdvi.options.validation import read_kind

    for name, key in (("label_key", label_key), ("domain_key", domain_key)):
        read_kind(name, key, str)
    keys = _fit_of(source, domain_key)
    summary: Any = {}
    if keys is not None:
        source, summary = select_fitted(source, keys), source.uns(keys.uns)
    section = read_section(
        source,
        spatial_key=spatial_key_of_fit(summary, spatial_key),
        label_key=label_key,
        sample_key=sample_key_of_fit(source, summary, sample_key),
        expression=False,
    )
    scores = scores_by_section(section, np.asarray(read_domains(source, domain_key).codes))
    scores.pop("samples", None)  # the scores of each section
    return scores


def _fit_of(source: Source, domain_key: str) -> "Keys | None":
    """Return the keys of the fit that the column of domains belongs to; None where it is no column of a fit."""
    from spatialpdvi.io.results.keys import Keys, prefixes_in

    for keys in map(Keys, prefixes_in(source)):
        if domain_key in (keys.domain, keys.fitted_domain, *map(keys.level, keys.levels_in(source))):
            return keys
    return None
