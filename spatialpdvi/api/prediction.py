"""Save a fitted model, and find its domains in other sections."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spatialpdvi.api.checked import checked_adata, checked_file
from spatialpdvi.api.fitting import warn_unless_converged
from spatialpdvi.api.signature import spell_out
from spatialpdvi.api.slim import write_result
from spatialpdvi.errors import InputError, option, own_names
from spatialpdvi.fitting.result import FitResult
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.storage.paths import locate, output_of
from spatialpdvi.model import Model
from spatialpdvi.options.fit import OF_A_SECTION
from spatialpdvi.runtime.progress import Progress, progress_of

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["load_model", "predict", "predict_file", "save_model"]


@spell_out(only=(*OF_A_SECTION, "save_graph"))
def predict(
    adata: "AnnData",
    *,
    model: str | Path | Model,
    key_added: str = "pdvi",
    correct: str | None = None,
    memory: str | None = None,
    progress: Progress | bool | None = None,
    **options: Any,
) -> FitResult:
    """Find the domains of a model in another section, and write them into it as `fit` does (docs/outputs.md).

    Parameters
    ----------
    adata
        A section of n spots with coordinates, and with raw counts or the features that the model was fitted on.
    model
        A model that `save_model` wrote, or the ``model`` of a `spatialpdvi.FitResult`.
    key_added
        Prefix of the keys that are written.
    correct
        Correction of differences to the sections of the fit: "none", or "center", which subtracts the section's mean
        from its components; by default what the fit did.
    memory
        Memory that the counts may use, such as "8GB"; by default all free memory. Counts that need more, with their
        copies, are read block by block.
    progress
        True shows the stages as lines on stderr; by default nothing is shown.
    options
        Options of a fit that describe the section.

    Returns
    -------
    A result like that of a fit, with posteriors (n, K). The domains are those of the model and have its numbers.

    Raises
    ------
    InputError
        Where the model, the data or an option cannot be used; ``adata`` is then unchanged.

    Examples
    --------
    >>> result = spv.predict(other, model="model.npz")
    >>> other.obs["pdvi_domain"].cat.categories.tolist()
    ['0', '1', '2']
    """
    from spatialpdvi.io.results.writing import apply_elements
    from spatialpdvi.prediction.predict import predict_options, predict_section, read_new

    keys, progress = Keys(key_added), progress_of(progress)
    known = _read_model(model)
    chosen = predict_options(known, key_added=key_added, correct=correct, memory=memory, **options)
    source = checked_adata(adata, keys, "predict_file")
    result = predict_section(read_new(source, known, chosen), known, chosen, progress)
    apply_elements(adata, result.elements(keys, save_graph=chosen.save_graph), remove=keys.pairs_in(source))
    warn_unless_converged(result)
    return result


@spell_out(only=(*OF_A_SECTION, "save_graph"))
def predict_file(
    path: str | Path,
    *,
    model: str | Path | Model,
    output: str | Path | None = None,
    slim: bool = False,
    key_added: str = "pdvi",
    correct: str | None = None,
    memory: str | None = None,
    progress: Progress | bool | None = None,
    **options: Any,
) -> FitResult:
    """Find the domains of a model in a file, and write them into it as `fit_file` does.

    Parameters
    ----------
    path
        An h5ad file or a zarr store.
    model
        A model that `save_model` wrote, or the ``model`` of a `spatialpdvi.FitResult`.
    output
        Where a copy of the file with the result is written; by default the file itself is updated.
    slim
        Whether the copy has no counts, as for `fit_file`.
    key_added, correct, memory, progress
        As for `predict`.
    options
        Options of a fit that describe the section.

    Returns
    -------
    The result that `predict` returns.

    Raises
    ------
    InputError
        Where the model, the data or an option cannot be used; nothing is written then.

    Examples
    --------
    >>> result = spv.predict_file("other.h5ad", model="model.npz", output="predicted.h5ad")
    >>> result.certificate.converged
    True
    """
    from spatialpdvi.io.results.slim import check_other_file
    from spatialpdvi.io.storage.locks import claimed
    from spatialpdvi.io.storage.outputs import check_distinct
    from spatialpdvi.prediction.predict import predict_options, predict_section, read_new

    progress = progress_of(progress)
    keys = Keys(key_added)
    source_path = locate(path)
    target = output_of(source_path, output)
    if isinstance(model, str | Path):
        check_distinct(target, "output", (model,))
    if slim:
        check_other_file(source_path, target)
    with claimed(target):
        with progress.stage("read") as stage:
            known = _read_model(model)
            chosen = predict_options(known, key_added=key_added, correct=correct, memory=memory, **options)
            with checked_file(source_path, target, keys, slim=slim) as source:
                section = read_new(source, known, chosen)
                stale, spots = keys.pairs_in(source), source.digest()
            stage.note(f"{section.coordinates.shape[0]:,} spots")
        result = predict_section(section, known, chosen, progress)
        elements = result.elements(keys, save_graph=chosen.save_graph)
        write_result(
            source_path, target, elements, keys, remove=stale, spots=spots, slim=slim, memory=memory, progress=progress
        )
    warn_unless_converged(result)
    return result


def save_model(result: FitResult, path: str | Path) -> None:
    """Write the model of a fit to a file.

    Parameters
    ----------
    result
        A fit whose ``model`` is not None.
    path
        The npz file to write, without pickled objects. It is replaced as a whole or not at all.

    Raises
    ------
    InputError
        Where the fit has no model, or the file cannot be written.

    Examples
    --------
    >>> result = spv.fit(adata, k=3, n_top_genes=60, n_init=1)
    >>> spv.save_model(result, "kept.npz")
    """
    from spatialpdvi.io.storage.archive import write_archive

    if not isinstance(result, FitResult):
        raise InputError("the result of a fit", f"an object of type {type(result).__name__}", option="result")
    if result.model is None:
        raise InputError(
            "the result of a fit with a model",
            "one without",
            f"Predictions and fits of sparse features have no model, nor do fits with {option('graph')}, "
            f"{option('correct', 'harmony')}, {option('transform', 'pearson')} or {option('n_pcs', 0)}, or with genes "
            "that share a name.",
        )
    arrays, facts = result.model.parts()
    write_archive(path, arrays, facts, option="path")


def load_model(path: str | Path) -> Model:
    """Read and check a model that `save_model` wrote.

    Parameters
    ----------
    path
        The npz file.

    Raises
    ------
    InputError
        Where there is no such file, or it is damaged or of another kind.

    Examples
    --------
    >>> len(spv.load_model("model.npz").colours)
    3
    """
    from spatialpdvi.io.storage.archive import read_archive

    arrays, facts = read_archive(path, option="path")
    return Model.from_parts(arrays, facts, name=Path(path).name)


def _read_model(model: Any) -> Model:
    """The model that was given, or that of a file."""
    if isinstance(model, Model):
        return model
    if not isinstance(model, str | Path):
        advice = "Give result.model." if isinstance(model, FitResult) else "Fit one, or read it with `load_model`."
        found = "None" if model is None else f"an object of type {type(model).__name__}"
        raise InputError("a model or the path of its file", found, advice, option="model")
    with own_names({"path": "model"}):
        return load_model(model)
