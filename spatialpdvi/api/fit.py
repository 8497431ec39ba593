"""Fit an AnnData in memory, a file on disk, or several files together."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spatialpdvi.api.files import checked_file
from spatialpdvi.checkpoints import Checkpoint
from spatialpdvi.errors import InputError
from spatialpdvi.fitting.export import why_no_model
from spatialpdvi.fitting.fit import fit_section, library_versions
from spatialpdvi.fitting.inputs import read_inputs
from spatialpdvi.fitting.result import FitResult
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.results.keys import Keys, check_free
from spatialpdvi.io.section.section import Section
from spatialpdvi.io.storage.paths import Location, locate
from spatialpdvi.model_selection.scan import fit_range
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.runtime.progress import Progress

if TYPE_CHECKING:
    from anndata import AnnData

    from spatialpdvi.distributed import Cluster

__all__ = ["fit", "fit_file", "fit_files"]


def fit(
    adata: "AnnData",
    *,
    k: int | str,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    cluster: "Cluster | None" = None,
    **options: Any,
) -> FitResult:
    """Find the spatial domains of a section and write them into it (obs, obsm, uns; docs/outputs.md).

    Parameters
    ----------
    adata
        Spots x genes with raw counts in a layer, X or raw.X, and coordinates in ``obsm['spatial']``.
    k
        Number of domains; ``"4:15"`` or ``"auto"`` to have one chosen, which ``result.scan`` then explains.
    progress
        Where stages are shown; nothing is shown by default.
    checkpoint
        Where the fit is kept while it runs, to go on after it was killed (`spatialpdvi.Checkpoint`).
    cluster
        Whose workers run the solver (`spatialpdvi.distributed.connect`); the result has the same bits.
    options
        Any field of `spatialpdvi.FitOptions`: the command line's options with underscores.

    Returns
    -------
    The fit, with domains, posteriors, trace, certificate and scores.

    Raises
    ------
    InputError
        Where the data or an option cannot be used; ``adata`` is then as it was.

    Examples
    --------
    >>> import spatialpdvi as spv
    >>> adata = spv.simulate(n_spots=400, n_genes=60, k=3)
    >>> result = spv.fit(adata, k=3, n_top_genes=60, n_init=1)
    >>> result.certificate.converged
    True
    >>> adata.obs["pdvi_domain"].cat.categories.tolist()
    ['0', '1', '2']
    >>> adata.obsm["pdvi_posterior"].shape
    (400, 3)
    """
    from spatialpdvi.io.results.writing import apply_elements

    chosen = FitOptions(k=k, **options)
    keys = Keys(chosen.key_added)
    source = AnnDataSource(adata)
    check_free(source, keys)
    progress = progress or Progress()
    with _ours(checkpoint, chosen, progress):
        section = read_inputs(source, chosen, cluster)
        result = _fit_k(chosen)(section, chosen, progress, checkpoint=checkpoint, cluster=cluster)
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
    checkpoint: Checkpoint | None = None,
    cluster: "Cluster | None" = None,
) -> FitResult:
    """Find the spatial domains of an h5ad file or a zarr store and write them into it, or into a copy at ``output``.

    Only the elements that the fit needs are read, and only its own are written; the file on disk is at any moment
    either the old one or the complete new one. With ``keep_model`` a fit whose ``model`` would be None is refused
    before it begins; with ``find_markers`` a result that was made of counts has its ``markers``. A ``checkpoint`` keeps
    the fit while it runs, to go on after it was killed, and is removed when the result is written. With a ``cluster``
    the solver runs on its workers.

    A copy is a zarr store where ``output`` ends in .zarr, and an h5ad where it ends in .h5ad. Of a SpatialData store
    the table is read (where there are several, their folders are the paths to give), and it is never written to.

    Examples
    --------
    >>> options = spv.FitOptions(k=3, n_top_genes=60, n_init=1)
    >>> result = spv.fit_file("section.h5ad", options, output="out.h5ad")
    >>> "pdvi_domain" in anndata.read_h5ad("out.h5ad").obs
    True
    """
    from spatialpdvi.io.results.writing import write_elements

    progress = progress or Progress()
    keys = Keys(options.key_added)
    source_path = locate(path)
    target = source_path if output is None else locate(output)
    with _ours(checkpoint, options, progress, target):
        with progress.stage("read") as stage:
            with checked_file(source_path, target, keys) as source:
                section = read_inputs(source, options, cluster)
                if keep_model:
                    _check_model(section, options)
            stage.note(f"{section.coordinates.shape[0]:,} spots")
        result = _fit_k(options)(
            section, options, progress, find_markers=find_markers, checkpoint=checkpoint, cluster=cluster
        )
        with progress.stage("write"):
            elements = result.elements(keys, save_graph=options.save_graph)
            write_elements(source_path, target, elements, remove=keys.all_pairs())
    return result


def fit_files(
    paths: Sequence[str | Path],
    options: FitOptions,
    *,
    output: str | Path | None = None,
    keep_model: bool = False,
    find_markers: bool = False,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    cluster: "Cluster | None" = None,
) -> FitResult:
    """Find the domains of several sections in one fit: a domain means the same in all of them.

    No edge, average or patch reaches from one section into another, but with ``across_sections``. Genes are
    matched by name.

    Parameters
    ----------
    paths
        At least two h5ad files or zarr stores; the sections are named by their files.
    options
        Of the fit; ``sample_key`` is refused, since the files are the samples.
    output
        Folder of the files to write, under their names; None writes back into the inputs. Each file is replaced in
        one instant, the files one after the other.
    keep_model
        Whether to refuse, before it begins, a fit whose ``model`` would be None.
    find_markers
        Whether a result that was made of counts has its ``markers``.
    checkpoint
        Where the fit is kept while it runs; removed when all files are written.
    cluster
        Whose workers run the solver.

    Returns
    -------
    The joint fit, spots of the first file first. Every file gets its own spots' part of it.

    Raises
    ------
    InputError
        Where the data or an option cannot be used; nothing is written then.

    Examples
    --------
    >>> options = spv.FitOptions(k=3, n_top_genes=60, n_init=1, correct="center")
    >>> result = spv.fit_files(["section.h5ad", "other.h5ad"], options, output="fitted")
    >>> sorted(path.name for path in Path("fitted").iterdir())
    ['other.h5ad', 'section.h5ad']
    """
    from spatialpdvi.io.results.writing import write_elements
    from spatialpdvi.io.section.joining import join_sections

    progress = progress or Progress()
    keys = Keys(options.key_added)
    located = [locate(path) for path in paths]
    names = _names_of(located)
    if options.sample_key is not None:
        msg = "Expected no `--sample-key` beside several files, which are the samples, found it. Leave it out."
        raise InputError(msg)
    targets = located if output is None else [locate(Path(output) / path.name) for path in located]
    if output is not None and not Path(output).is_dir():
        msg = f"Expected `--output` to be a folder that exists, for {len(paths)} files, found {str(output)!r}. Make it."
        raise InputError(msg)
    with _ours(checkpoint, options, progress, *targets):
        with progress.stage("read") as stage:
            sections = []
            for path, target in zip(located, targets, strict=True):
                with checked_file(path, target, keys) as source:
                    sections.append(read_inputs(source, options, cluster))
            section = join_sections(sections, names)
            if keep_model:
                _check_model(section, options)
            stage.note(f"{section.coordinates.shape[0]:,} spots of {len(names)} sections")
        result = _fit_k(options)(
            section, options, progress, find_markers=find_markers, checkpoint=checkpoint, cluster=cluster
        )
        with progress.stage("write"):
            for path, target, spots in zip(located, targets, section.spots_of_samples(), strict=True):
                elements = result.part(spots).elements(keys, save_graph=options.save_graph)
                write_elements(path, target, elements, remove=keys.all_pairs())
    return result


def _fit_k(options: FitOptions) -> Callable[..., FitResult]:
    """What fits one number of domains, or chooses one from a range."""
    return fit_range if isinstance(options.k, str) else fit_section


def _check_model(section: Section, options: FitOptions) -> None:
    """Raise before a fit whose model could not be saved."""
    error = why_no_model(section, options)
    if error is not None:
        raise error


@contextmanager
def _ours(checkpoint: Checkpoint | None, options: FitOptions, progress: Progress, *outputs: Location) -> Iterator[None]:
    """Outputs and checkpoint are no other run's meanwhile; the checkpoint is open, and closed where all went well."""
    from spatialpdvi.io.storage.locks import claimed

    with claimed(*outputs, None if checkpoint is None else checkpoint.folder):
        if checkpoint is not None:
            checkpoint.open(options, library_versions(), progress)
        yield
        if checkpoint is not None and not checkpoint.keep:
            checkpoint.close()


def _names_of(paths: Sequence[Location]) -> list[str]:
    """Names of files without their endings, all different."""
    names = [Path(path.name).stem for path in paths]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        msg = f"Expected files of different names, found {', '.join(map(repr, repeated))} twice. Rename one."
        raise InputError(msg)
    return names
