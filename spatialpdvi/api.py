"""Python's way in: fit an AnnData in memory, or a file on disk. The command line is a thin layer over these."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spatialpdvi.io.keys import Keys, check_free
from spatialpdvi.io.sources import AnnDataSource, Source
from spatialpdvi.options import FitOptions
from spatialpdvi.pipeline import fit_section, read_inputs
from spatialpdvi.progress import Progress
from spatialpdvi.result import FitResult

if TYPE_CHECKING:
    from anndata import AnnData
    from matplotlib.figure import Figure

__all__ = ["evaluate", "evaluate_file", "fit", "fit_file", "plot_file"]


def fit(adata: "AnnData", *, k: int, progress: Progress | None = None, **options: Any) -> FitResult:
    """Find the spatial domains of a section and write them into it (obs, obsm, uns; docs/outputs.md).

    Parameters
    ----------
    adata
        Spots x genes with raw counts in a layer, X or raw.X, and coordinates in ``obsm['spatial']``.
    k
        Number of domains.
    progress
        Where stages are shown; nothing is shown by default.
    options
        Any field of `spatialpdvi.FitOptions`: the command line's options with underscores.

    Returns
    -------
    The fit, with domains, posteriors, trace, certificate and scores.

    Raises
    ------
    InputError
        Where the data or an option cannot be used; ``adata`` is then as it was.
    """
    from spatialpdvi.io.writing import apply_elements

    chosen = FitOptions(k=k, **options)
    keys = Keys(chosen.key_added)
    source = AnnDataSource(adata)
    check_free(source, keys)
    result = fit_section(read_inputs(source, chosen), chosen, progress or Progress())
    apply_elements(adata, result.elements(keys, save_graph=chosen.save_graph), remove=keys.all_pairs())
    return result


def fit_file(
    path: str | Path, options: FitOptions, *, output: str | Path | None = None, progress: Progress | None = None
) -> FitResult:
    """Find the spatial domains of an h5ad file and write them into it, or into a copy at ``output``.

    Only the elements that the fit needs are read, and only its own are written; the file on disk is at any moment
    either the old one or the complete new one.
    """
    from spatialpdvi.io.h5ad import H5adSource
    from spatialpdvi.io.writing import check_output, write_elements

    progress = progress or Progress()
    keys = Keys(options.key_added)
    target = path if output is None else output
    with progress.stage("read") as stage:
        with H5adSource(path) as source:
            check_output(path, target)
            check_free(source, keys)
            section = read_inputs(source, options)
        stage.note(f"{section.coordinates.shape[0]:,} spots")
    result = fit_section(section, options, progress)
    with progress.stage("write"):
        elements = result.elements(keys, save_graph=options.save_graph)
        write_elements(path, target, elements, remove=keys.all_pairs())
    return result


def evaluate(
    adata: "AnnData", *, label_key: str, domain_key: str = "pdvi_domain", spatial_key: str = "spatial"
) -> dict[str, Any]:
    """Scores of one column of obs against another, and its spatial coherence (`spatialpdvi.scores.scores`).

    Raises
    ------
    InputError
        Where a key is missing, or the column of domains has missing values.
    """
    return _evaluate(AnnDataSource(adata), label_key, domain_key, spatial_key)


def evaluate_file(
    path: str | Path, *, label_key: str, domain_key: str = "pdvi_domain", spatial_key: str = "spatial"
) -> dict[str, Any]:
    """`evaluate` for an h5ad file; only the columns and the coordinates are read."""
    from spatialpdvi.io.h5ad import H5adSource

    with H5adSource(path) as source:
        return _evaluate(source, label_key, domain_key, spatial_key)


def plot_file(
    path: str | Path, *, key_added: str = "pdvi", label_key: str | None = None, spatial_key: str = "spatial"
) -> "Figure":
    """Picture of a fitted h5ad file: annotation, domains, confidence and convergence (`plot_section`)."""
    from spatialpdvi.io.fitted import read_fitted
    from spatialpdvi.io.h5ad import H5adSource
    from spatialpdvi.plotting import plot_section

    with H5adSource(path) as source:
        fitted = read_fitted(source, Keys(key_added), label_key=label_key, spatial_key=spatial_key)
    return plot_section(
        fitted.coordinates,
        fitted.domains,
        annotation=fitted.annotation,
        confidence=fitted.confidence,
        trace=fitted.summary["trace"],
        scores=fitted.summary["scores"],
        title=Path(path).stem,
    )


def _evaluate(source: Source, label_key: str, domain_key: str, spatial_key: str) -> dict[str, Any]:
    from spatialpdvi.io.coordinates import read_coordinates
    from spatialpdvi.io.labels import read_domains, read_labels
    from spatialpdvi.scores import scores

    labels, _ = read_labels(source, label_key)
    domains = read_domains(source, domain_key)
    return scores(domains, read_coordinates(source, spatial_key), labels=labels)
