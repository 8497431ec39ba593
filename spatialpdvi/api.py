"""Python's way in: fit an AnnData in memory, or a file on disk. The command line is a thin layer over these."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spatialpdvi.errors import InputError
from spatialpdvi.io.keys import Keys, check_free
from spatialpdvi.io.sources import AnnDataSource, Source
from spatialpdvi.keeping import check_keepable
from spatialpdvi.model import Model
from spatialpdvi.options import FitOptions
from spatialpdvi.pipeline import fit_section, read_inputs
from spatialpdvi.progress import Progress
from spatialpdvi.result import FitResult

if TYPE_CHECKING:
    from anndata import AnnData
    from matplotlib.figure import Figure

    from spatialpdvi.io.h5ad import H5adSource

__all__ = [
    "evaluate",
    "evaluate_file",
    "fit",
    "fit_file",
    "fit_files",
    "load_model",
    "plot_file",
    "predict",
    "predict_file",
    "save_model",
]


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
    path: str | Path,
    options: FitOptions,
    *,
    output: str | Path | None = None,
    keep_model: bool = False,
    find_markers: bool = False,
    progress: Progress | None = None,
) -> FitResult:
    """Find the spatial domains of an h5ad file and write them into it, or into a copy at ``output``.

    Only the elements that the fit needs are read, and only its own are written; the file on disk is at any moment
    either the old one or the complete new one. With ``keep_model`` a fit whose ``model`` would be None is refused
    before it begins; with ``find_markers`` a result that was made of counts has its ``markers``.
    """
    from spatialpdvi.io.writing import write_elements

    progress = progress or Progress()
    keys = Keys(options.key_added)
    target = path if output is None else output
    with progress.stage("read") as stage:
        with _checked(path, target, keys) as source:
            section = read_inputs(source, options)
            if keep_model:
                check_keepable(section, options)
        stage.note(f"{section.coordinates.shape[0]:,} spots")
    result = fit_section(section, options, progress, find_markers=find_markers)
    with progress.stage("write"):
        elements = result.elements(keys, save_graph=options.save_graph)
        write_elements(path, target, elements, remove=keys.all_pairs())
    return result


def fit_files(
    paths: Sequence[str | Path],
    options: FitOptions,
    *,
    output: str | Path | None = None,
    keep_model: bool = False,
    find_markers: bool = False,
    progress: Progress | None = None,
) -> FitResult:
    """Find the domains of several sections in one fit: a domain means the same in all of them.

    No edge, average or patch reaches from one section into another, but with ``across_sections``. Genes are
    matched by name.

    Parameters
    ----------
    paths
        At least two h5ad files; the sections are named by their files.
    options
        Of the fit; ``sample_key`` is refused, since the files are the samples.
    output
        Folder of the files to write, under their names; None writes back into the inputs. Each file is replaced in
        one instant, the files one after the other.
    keep_model
        Whether to refuse, before it begins, a fit whose ``model`` would be None.
    find_markers
        Whether a result that was made of counts has its ``markers``.

    Returns
    -------
    The joint fit, spots of the first file first. Every file gets its own spots' part of it.

    Raises
    ------
    InputError
        Where the data or an option cannot be used; nothing is written then.
    """
    from spatialpdvi.io.joining import join_sections
    from spatialpdvi.io.writing import write_elements

    progress = progress or Progress()
    keys = Keys(options.key_added)
    names = _names_of(paths)
    if options.sample_key is not None:
        msg = "Expected no `--sample-key` beside several files, which are the samples, found it. Leave it out."
        raise InputError(msg)
    targets = [Path(path) if output is None else Path(output) / Path(path).name for path in paths]
    if output is not None and not Path(output).is_dir():
        msg = f"Expected `--output` to be a folder that exists, for {len(paths)} files, found {str(output)!r}. Make it."
        raise InputError(msg)
    with progress.stage("read") as stage:
        sections = []
        for path, target in zip(paths, targets, strict=True):
            with _checked(path, target, keys) as source:
                sections.append(read_inputs(source, options))
        section = join_sections(sections, names)
        if keep_model:
            check_keepable(section, options)
        stage.note(f"{section.coordinates.shape[0]:,} spots of {len(names)} sections")
    result = fit_section(section, options, progress, find_markers=find_markers)
    with progress.stage("write"):
        for path, target, spots in zip(paths, targets, section.spots_of_samples(), strict=True):
            elements = result.part(spots).elements(keys, save_graph=options.save_graph)
            write_elements(path, target, elements, remove=keys.all_pairs())
    return result


@contextmanager
def _checked(path: str | Path, target: str | Path, keys: Keys) -> "Iterator[H5adSource]":
    """An h5ad file opened for reading, whose result can be written to the target under these names."""
    from spatialpdvi.io.h5ad import H5adSource
    from spatialpdvi.io.writing import check_output

    with H5adSource(path) as source:
        check_output(path, target)
        check_free(source, keys)
        yield source


def _names_of(paths: Sequence[str | Path]) -> list[str]:
    """Names of files without their endings, all different."""
    names = [Path(path).stem for path in paths]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        msg = f"Expected files of different names, found {', '.join(map(repr, repeated))} twice. Rename one."
        raise InputError(msg)
    return names


def predict(
    adata: "AnnData",
    *,
    model: str | Path | Model,
    key_added: str = "pdvi",
    progress: Progress | None = None,
    **options: Any,
) -> FitResult:
    """Find the domains of a kept model in a section and write them into it, as `fit` does (docs/outputs.md).

    Parameters
    ----------
    adata
        Spots x genes with raw counts, or the features that the model was fitted on, and coordinates.
    model
        A file of `save_model` or ``fit --save-model``, or the ``model`` of a fit.
    key_added
        Prefix of the keys that are written.
    progress
        Where stages are shown; nothing is shown by default.
    options
        ``layer``, ``spatial_key``, ``label_key``, ``sample_key`` and ``save_graph`` as for `fit`, and ``correct``,
        which is as it was in the model's fit by default.

    Returns
    -------
    As of a fit whose domains were held: they are numbered as in the model.

    Raises
    ------
    InputError
        Where the model, the data or an option cannot be used; ``adata`` is then as it was.
    """
    from spatialpdvi.io.writing import apply_elements
    from spatialpdvi.prediction import predict_options, predict_section, read_new

    keys = Keys(key_added)
    known = model if isinstance(model, Model) else load_model(model)
    chosen = predict_options(known, key_added=key_added, **options)
    source = AnnDataSource(adata)
    check_free(source, keys)
    result = predict_section(read_new(source, known, chosen), known, chosen, progress or Progress())
    apply_elements(adata, result.elements(keys, save_graph=chosen.save_graph), remove=keys.all_pairs())
    return result


def predict_file(
    path: str | Path,
    *,
    model: str | Path | Model,
    output: str | Path | None = None,
    key_added: str = "pdvi",
    progress: Progress | None = None,
    **options: Any,
) -> FitResult:
    """`predict` for an h5ad file, written into it or into a copy at ``output`` as `fit_file` writes."""
    from spatialpdvi.io.writing import write_elements
    from spatialpdvi.prediction import predict_options, predict_section, read_new

    progress = progress or Progress()
    keys = Keys(key_added)
    target = path if output is None else output
    with progress.stage("read") as stage:
        known = model if isinstance(model, Model) else load_model(model)
        chosen = predict_options(known, key_added=key_added, **options)
        with _checked(path, target, keys) as source:
            section = read_new(source, known, chosen)
        stage.note(f"{section.coordinates.shape[0]:,} spots")
    result = predict_section(section, known, chosen, progress)
    with progress.stage("write"):
        write_elements(path, target, result.elements(keys, save_graph=chosen.save_graph), remove=keys.all_pairs())
    return result


def save_model(result: FitResult, path: str | Path) -> None:
    """Write the model of a fit to a file of its own (npz, nothing pickled), all or nothing.

    Raises
    ------
    InputError
        Where the fit has no model (its ``model`` is None), or the file cannot be written.
    """
    from spatialpdvi.io.archive import write_archive

    if result.model is None:
        msg = (
            "Expected a fit that leaves a model, found one without: predictions, sparse features, --graph, --correct "
            "harmony, --transform pearson and --n-pcs 0 leave none, nor do genes that share a name. Fit otherwise."
        )
        raise InputError(msg)
    arrays, facts = result.model.parts()
    write_archive(path, arrays, facts, option="--save-model")


def load_model(path: str | Path) -> Model:
    """Model that `save_model` has written, checked."""
    from spatialpdvi.io.archive import read_archive

    arrays, facts = read_archive(path, option="--model")
    return Model.from_parts(arrays, facts, name=Path(path).name)


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
    """Picture of a fitted h5ad file: annotation, domains, confidence, convergence, reliability (`plot_section`)."""
    from spatialpdvi.calibration import calibration_scores
    from spatialpdvi.io.fitted import read_fitted
    from spatialpdvi.io.h5ad import H5adSource
    from spatialpdvi.plotting import plot_section

    with H5adSource(path) as source:
        fitted = read_fitted(source, Keys(key_added), label_key=label_key, spatial_key=spatial_key)
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
        scores=fitted.summary["scores"],
        colours=fitted.colours,
        title=Path(path).stem,
    )


def _evaluate(source: Source, label_key: str, domain_key: str, spatial_key: str) -> dict[str, Any]:
    from spatialpdvi.io.coordinates import read_coordinates
    from spatialpdvi.io.labels import read_domains, read_labels
    from spatialpdvi.scores import scores

    labels, _ = read_labels(source, label_key)
    domains = read_domains(source, domain_key)
    return scores(domains, read_coordinates(source, spatial_key), labels=labels)
