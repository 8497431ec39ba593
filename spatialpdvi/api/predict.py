"""Keep a fitted model, and find its domains in other sections."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spatialpdvi.api.files import checked_file
from spatialpdvi.errors import InputError, option
from spatialpdvi.fitting.result import FitResult
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.results.keys import Keys, check_free
from spatialpdvi.io.storage.paths import locate
from spatialpdvi.model import Model
from spatialpdvi.runtime.progress import Progress

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["load_model", "predict", "predict_file", "save_model"]


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

    Examples
    --------
    >>> result = spv.predict(other, model="model.npz")
    >>> other.obs["pdvi_domain"].cat.categories.tolist()
    ['0', '1', '2']
    """
    from spatialpdvi.io.results.writing import apply_elements
    from spatialpdvi.prediction.predict import predict_options, predict_section, read_new

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
    """`predict` for an h5ad file or a zarr store, written into it or into a copy at ``output`` as `fit_file` writes.

    Examples
    --------
    >>> result = spv.predict_file("other.h5ad", model="model.npz", output="predicted.h5ad")
    >>> result.certificate.converged
    True
    """
    from spatialpdvi.io.results.writing import write_elements
    from spatialpdvi.io.storage.locks import claimed
    from spatialpdvi.prediction.predict import predict_options, predict_section, read_new

    progress = progress or Progress()
    keys = Keys(key_added)
    source_path = locate(path)
    target = source_path if output is None else locate(output)
    with claimed(target):
        with progress.stage("read") as stage:
            known = model if isinstance(model, Model) else load_model(model)
            chosen = predict_options(known, key_added=key_added, **options)
            with checked_file(source_path, target, keys) as source:
                section = read_new(source, known, chosen)
            stage.note(f"{section.coordinates.shape[0]:,} spots")
        result = predict_section(section, known, chosen, progress)
        with progress.stage("write"):
            elements = result.elements(keys, save_graph=chosen.save_graph)
            write_elements(source_path, target, elements, remove=keys.all_pairs())
    return result


def save_model(result: FitResult, path: str | Path) -> None:
    """Write the model of a fit to a file of its own (npz, nothing pickled), all or nothing.

    Raises
    ------
    InputError
        Where the fit has no model (its ``model`` is None), or the file cannot be written.

    Examples
    --------
    >>> result = spv.fit(adata, k=3, n_top_genes=60, n_init=1)
    >>> spv.save_model(result, "kept.npz")
    """
    from spatialpdvi.io.storage.archive import write_archive

    if result.model is None:
        msg = (
            "Expected a fit that leaves a model, found one without: predictions, sparse features, --graph, --correct "
            "harmony, --transform pearson and --n-pcs 0 leave none, nor do genes that share a name. Fit otherwise."
        )
        raise InputError(msg)
    arrays, facts = result.model.parts()
    write_archive(path, arrays, facts, option="save_model")


def load_model(path: str | Path) -> Model:
    """Model that `save_model` has written, checked.

    Examples
    --------
    >>> len(spv.load_model("model.npz").colours)
    3
    """
    from spatialpdvi.io.storage.archive import read_archive

    arrays, facts = read_archive(path, option="model", writer=option("save_model"))
    return Model.from_parts(arrays, facts, name=Path(path).name)
