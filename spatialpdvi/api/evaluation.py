"""Score and draw domains that are there already."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spatialpdvi.io.formats.sources import AnnDataSource, Source
from spatialpdvi.io.results.keys import Keys

if TYPE_CHECKING:
    from anndata import AnnData
    from matplotlib.figure import Figure

    from spatialpdvi.io.results.fitted import Fitted

__all__ = ["evaluate", "evaluate_file", "plot_file"]


def evaluate(
    adata: "AnnData", *, label_key: str, domain_key: str = "pdvi_domain", spatial_key: str = "spatial"
) -> dict[str, Any]:
    """Scores of one column of obs against another, and its spatial coherence (`metrics.clustering.domain_scores`).

    Raises
    ------
    InputError
        Where a key is missing, or the column of domains has missing values.

    Examples
    --------
    >>> scores = spv.evaluate(adata, label_key="annotation")
    >>> scores["ari"] > 0.5
    True
    """
    return _evaluate(AnnDataSource(adata), label_key, domain_key, spatial_key)


def evaluate_file(
    path: str | Path, *, label_key: str, domain_key: str = "pdvi_domain", spatial_key: str = "spatial"
) -> dict[str, Any]:
    """`evaluate` for an h5ad file or a zarr store; only the columns and the coordinates are read.

    Examples
    --------
    >>> from spatialpdvi.api import evaluate_file
    >>> evaluate_file("fitted.h5ad", label_key="annotation") == spv.evaluate(adata, label_key="annotation")
    True
    """
    from spatialpdvi.io.formats.h5ad import H5adSource

    with H5adSource(path) as source:
        return _evaluate(source, label_key, domain_key, spatial_key)


def plot_file(
    path: str | Path,
    *,
    kinds: Sequence[str] = ("overview",),
    key_added: str = "pdvi",
    label_key: str | None = None,
    spatial_key: str = "spatial",
    sample_key: str | None = None,
) -> "Figure":
    """Picture of a fitted file.

    Parameters
    ----------
    path
        An h5ad file or a zarr store.
    kinds
        Names of `spatialpdvi.plotting.kinds.KINDS`, a panel each; or ``overview`` alone: annotation, domains,
        confidence, convergence, K and reliability, as far as they are known (`plot_section`).
    key_added
        Prefix of the keys that the fit wrote.
    label_key
        Column of ``obs`` with known labels; by default ``annotation``, where there is one.
    spatial_key
        Key in ``obsm`` of the coordinates.
    sample_key
        Column of ``obs`` with the section of each spot; by default that of the fit.

    Raises
    ------
    InputError
        Where there is no fit, a kind is unknown, or what it shows is not in the file.

    Examples
    --------
    >>> from spatialpdvi.api import plot_file
    >>> plot_file("fitted.h5ad", kinds=["domains", "confusion"]).savefig("domains.png")
    """
    from spatialpdvi.io.formats.h5ad import H5adSource
    from spatialpdvi.io.results.fitted import read_fitted
    from spatialpdvi.io.storage.paths import section_name
    from spatialpdvi.plotting.kinds import View, plot_kinds

    keys, title = Keys(key_added), Path(section_name(path)).stem
    with H5adSource(path) as source:
        fitted = read_fitted(source, keys, label_key=label_key, spatial_key=spatial_key, sample_key=sample_key)
        if tuple(kinds) != ("overview",):
            return plot_kinds(View(source, keys, fitted), kinds, title=title)
    return _overview(fitted, title)


def _overview(fitted: "Fitted", title: str) -> "Figure":
    from spatialpdvi.metrics.calibration import calibration_scores
    from spatialpdvi.plotting import plot_section

    assert fitted.coordinates is not None  # read with the rest
    calibration = None
    if fitted.annotation is not None:
        # not what the fit has stored: that is of the labels it was given
        domains, codes = fitted.domains.codes, fitted.annotation.codes
        calibration = calibration_scores(domains, codes, confidence=fitted.confidence, calibrated=fitted.calibrated)
    return plot_section(
        fitted.coordinates,
        fitted.domains,
        annotation=fitted.annotation,
        confidence=fitted.confidence if fitted.calibrated is None else fitted.calibrated,
        calibration=calibration,
        trace=fitted.summary["trace"],
        k_scan=fitted.summary.get("k_scan"),
        k=len(fitted.domains.categories),
        scores=fitted.summary["scores"],
        colours=fitted.colours,
        samples=fitted.samples,
        title=title,
    )


def _evaluate(source: Source, label_key: str, domain_key: str, spatial_key: str) -> dict[str, Any]:
    from spatialpdvi.io.section.coordinates import read_coordinates
    from spatialpdvi.io.section.labels import read_domains, read_labels
    from spatialpdvi.metrics.clustering import domain_scores

    labels, _ = read_labels(source, label_key)
    domains = read_domains(source, domain_key)
    return domain_scores(domains, read_coordinates(source, spatial_key), labels=labels)
