"""Fit an AnnData in memory, a file on disk, or several files together."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from spatialpdvi.api.checked import checked_adata, checked_file, exclusive_run
from spatialpdvi.api.folders import made_folder
from spatialpdvi.api.intervals import check_intervals, with_intervals
from spatialpdvi.api.signature import spell_out
from spatialpdvi.api.slim import write_result
from spatialpdvi.checkpoints import Checkpoint
from spatialpdvi.errors import InputError, InputWarning, NotConvergedWarning, about_section, option, own_names
from spatialpdvi.fitting.export import why_no_model
from spatialpdvi.fitting.fit import fit_section
from spatialpdvi.fitting.inputs import read_inputs
from spatialpdvi.fitting.result import FitResult, default_names
from spatialpdvi.fitting.separation import explain_separation
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.names import read_own_colours
from spatialpdvi.io.section.section import Section
from spatialpdvi.io.storage.paths import Location, different_names, file_names, locate, locate_all, output_of
from spatialpdvi.model_selection.scan import fit_range
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.options.presets import preset_options
from spatialpdvi.runtime.progress import Progress, progress_of
from spatialpdvi.runtime.rows import SpreadRows

if TYPE_CHECKING:
    from anndata import AnnData

    from spatialpdvi.distributed import Cluster

__all__ = ["fit", "fit_file", "fit_files", "warn_unless_converged"]


@spell_out()
def fit(
    adata: "AnnData",
    *,
    k: int | str,
    preset: str | None = None,
    intervals: bool = False,
    progress: Progress | bool | None = None,
    checkpoint: Checkpoint | None = None,
    cluster: "Cluster | None" = None,
    **options: Any,
) -> FitResult:
    """Find the spatial domains of a section and write them into its obs, obsm and uns (docs/outputs.md).

    Parameters
    ----------
    adata
        A section of n spots, with raw counts in a layer, X or raw.X and coordinates (n, 2) or (n, 3), in any unit, in
        ``obsm['spatial']``.
    k
        Number of domains, K. For ``"4:15"`` or ``"auto"`` a number is chosen, and ``result.scan`` explains the choice.
    preset
        Name of a set of options, of which options that are given by name win. There is one: ``"paper"``, the published
        setting of P2D-VI (`spatialpdvi.preset_options`). By default none.
    intervals
        Whether to write credible intervals of the domains' marker genes and composition too, as
        ``spatialpdvi.intervals(adata, store=True)`` does; the section must have counts.
    progress
        True shows the stages as lines on stderr; by default nothing is shown.
    checkpoint
        Saves the state of the fit while it runs, so that it can be resumed.
    cluster
        Runs the solver on the workers of a Dask cluster (`spatialpdvi.distributed.connect`). The result has the same
        bits.
    options
        Every option of `spatialpdvi.FitOptions`, as on the command line (docs/cli.md).

    Returns
    -------
    The fit: domains (n,), posteriors (n, K), trace, certificate and scores.

    Raises
    ------
    InputError
        Where the data or an option cannot be used; ``adata`` is then unchanged.

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

    chosen = _chosen(None, k, preset, options)
    keys = Keys(chosen.key_added)
    source = checked_adata(adata, keys, "fit_file")
    progress = progress_of(progress)
    with exclusive_run(checkpoint, cluster, chosen, progress):
        section = read_inputs(source, chosen, cluster)
        if intervals:
            check_intervals(source, chosen, section.kept)
        result = _fit_k(chosen)(section, chosen, progress, checkpoint=checkpoint, cluster=cluster)
        result = _with_own_colours(result, [read_own_colours(source, keys)])
        elements, stale = result.elements(keys, save_graph=chosen.save_graph), keys.pairs_in(source)
        if intervals:
            elements = with_intervals(source, elements, keys, chosen.memory, remove=stale, progress=progress)
        apply_elements(adata, elements, remove=stale)
    warn_unless_converged(result)
    _warn_of_separation(result)
    return result


@spell_out()
def fit_file(
    path: str | Path,
    options: FitOptions | None = None,
    *,
    k: int | str | None = None,
    preset: str | None = None,
    output: str | Path | None = None,
    slim: bool = False,
    intervals: bool = False,
    keep_model: bool = False,
    find_markers: bool = False,
    progress: Progress | bool | None = None,
    checkpoint: Checkpoint | None = None,
    cluster: "Cluster | None" = None,
    **by_name: Any,
) -> FitResult:
    """Find the spatial domains of a file and write them into it, or into a copy of it.

    Only the elements that the fit needs are read. The file on disk is at any moment either the old one or the complete
    new one.

    Parameters
    ----------
    path
        An h5ad file, a zarr store, or a SpatialData store with one table; if it has several, the folder of a table.
    options
        All options of the fit, in place of ``k``, ``preset`` and others by name.
    k, preset
        As for `fit`.
    by_name
        Every option of `spatialpdvi.FitOptions`, as for `fit`.
    output
        Where a copy with the result is written: a zarr store if the path ends in .zarr, an h5ad file if it ends in
        .h5ad. By default the file itself is updated.
    slim
        Whether the copy has the results, ``obs``, the coordinates and the images of the tissue, and no counts; it needs
        ``output``.
    intervals
        Whether to write credible intervals of the domains' marker genes and composition too, as
        ``spatialpdvi.intervals_file(path, store=True)`` does; the file must have counts.
    keep_model
        Whether the result must have a ``model``. If it would be None, an error is raised before the fit begins.
    find_markers
        Whether to find the marker genes of the domains (``result.markers``), if the file has counts.
    progress
        True shows the stages as lines on stderr; by default nothing is shown.
    checkpoint
        Saves the state of the fit while it runs, so that it can be resumed. It is removed when the result is written,
        unless the fit has ended at ``max_epochs``: it can then be resumed with more.
    cluster
        Runs the solver on the workers of a Dask cluster (`spatialpdvi.distributed.connect`). The result has the same
        bits.

    Returns
    -------
    The fit: domains (n,), posteriors (n, K), trace, certificate and scores.

    Raises
    ------
    InputError
        Where the data or an option cannot be used; nothing is written then.

    Examples
    --------
    >>> result = spv.fit_file("section.h5ad", k=3, n_top_genes=60, n_init=1, output="out.h5ad")
    >>> "pdvi_domain" in anndata.read_h5ad("out.h5ad").obs
    True
    """
    source = locate(path)
    result = _fit_located(
        [source],
        [output_of(source, output)],
        _chosen(options, k, preset, by_name),
        slim=slim,
        intervals=intervals,
        keep_model=keep_model,
        find_markers=find_markers,
        progress=progress_of(progress),
        checkpoint=checkpoint,
        cluster=cluster,
    )
    warn_unless_converged(result)
    _warn_of_separation(result)
    return result


@spell_out(without=["sample_key"])
def fit_files(
    paths: Sequence[str | Path],
    options: FitOptions | None = None,
    *,
    k: int | str | None = None,
    preset: str | None = None,
    output: str | Path | None = None,
    slim: bool = False,
    intervals: bool = False,
    keep_model: bool = False,
    find_markers: bool = False,
    progress: Progress | bool | None = None,
    checkpoint: Checkpoint | None = None,
    cluster: "Cluster | None" = None,
    **by_name: Any,
) -> FitResult:
    """Fit several files together, with one set of domains for all of them.

    Edges, averages and patches stay within a section, unless ``across_sections`` is set. Genes are matched by name.

    Parameters
    ----------
    paths
        h5ad files or zarr stores with different names, which are the names of the sections.
    options, k, preset, by_name
        As for `fit_file`, without ``sample_key``: each file is a section.
    output
        Folder for copies with the result, which have the names of the inputs; it is made if it does not exist. By
        default the inputs are updated, one after the other.
    slim, intervals, keep_model, find_markers, progress, checkpoint, cluster
        As for `fit_file`. Intervals are of the spots of each file by themselves.

    Returns
    -------
    The joint fit, with the spots of the first file first. Each file gets the part of the result for its own spots.

    Raises
    ------
    InputError
        Where the data or an option cannot be used; nothing is written then.

    Examples
    --------
    >>> files = ["section.h5ad", "other.h5ad"]
    >>> result = spv.fit_files(files, k=3, n_top_genes=60, n_init=1, correct="center", output="fitted")
    >>> sorted(path.name for path in Path("fitted").iterdir())
    ['other.h5ad', 'section.h5ad']
    """
    sources = locate_all(paths)
    names = different_names(sources)
    chosen = _chosen(options, k, preset, by_name)
    if chosen.sample_key is not None:
        raise InputError(
            f"no {option('sample_key')} with several files",
            repr(chosen.sample_key),
            "Leave it out: each file is a section by itself.",
        )
    with made_folder(output, n_files=len(paths)):
        result = _fit_located(
            sources,
            sources if output is None else [locate(Path(output) / name) for name in file_names(sources)],
            chosen,
            names=names,
            slim=slim,
            intervals=intervals,
            keep_model=keep_model,
            find_markers=find_markers,
            progress=progress_of(progress),
            checkpoint=checkpoint,
            cluster=cluster,
        )
    warn_unless_converged(result)
    _warn_of_separation(result)
    return result


def warn_unless_converged(result: FitResult) -> None:
    """Warn the caller of a public function of a fit that has not converged, once its result is written."""
    if not result.certificate.converged:
        text = f"{result.certificate.sentence()} The result is written all the same."
        warnings.warn(NotConvergedWarning(text), stacklevel=4)


def _warn_of_separation(result: FitResult) -> None:
    """Warn the caller of a public function of domains that lie in one of several sections that were fitted together."""
    text = explain_separation(result)
    if text is not None:
        warnings.warn(InputWarning(text), stacklevel=4)


def _chosen(
    options: FitOptions | None, k: int | str | None, preset: str | None, by_name: Mapping[str, Any]
) -> FitOptions:
    """Return options that are given as one, or by name with or without a preset."""
    if options is None:
        by_name = {"k": k, **by_name}
        return FitOptions(**by_name) if preset is None else preset_options(preset, **by_name)
    if not isinstance(options, FitOptions):
        advice = "A number of domains is given by name, as `k`."
        raise InputError("spatialpdvi.FitOptions", repr(options), advice, option="options")
    named = [name for name, given in (("k", k), ("preset", preset)) if given is not None] + list(by_name)
    if named:
        raise InputError("`options`, or options by name", f"both ({', '.join(named)})", "Give one of them.")
    return options


@contextmanager
def _of_several(name: str | None) -> Iterator[None]:
    """Let what is said of one of several files name it, without advice on a column of sections; None is one alone."""
    if name is None:
        yield
        return
    with about_section(name), own_names({"sample_key": None}):
        yield


class _File(NamedTuple):
    """A file that was read, and what is needed to write its part of the result."""

    source: Location
    target: Location
    kept: np.ndarray | None  # (n,) which spots are fitted; None for all
    colours: dict[str, str] | None  # that the user gave to the domains of an earlier fit
    stale: Sequence[tuple[str, str]]  # what an earlier fit has written
    spots: bytes  # `H5adSource.digest` of those that were read


def _fit_located(
    sources: Sequence[Location],
    targets: Sequence[Location],
    options: FitOptions,
    *,
    names: Sequence[str] | None = None,
    slim: bool,
    intervals: bool,
    keep_model: bool,
    find_markers: bool,
    progress: Progress,
    checkpoint: Checkpoint | None,
    cluster: "Cluster | None",
) -> FitResult:
    """Fit one file or, with the names of their sections, several files, and write the result into the targets."""
    from spatialpdvi.io.results.slim import check_other_file

    if slim:
        for target, source in product(targets, sources):
            check_other_file(source, target)
    with exclusive_run(checkpoint, cluster, options, progress, *targets):
        with progress.stage("read") as stage:
            section, files = _read_files(
                sources, targets, names, options, slim=slim, intervals=intervals, cluster=cluster
            )
            if keep_model:
                _check_model(section, options)
            of_sections = "" if names is None else f" of {len(names)} sections"
            stage.note(f"{section.coordinates.shape[0]:,} spots{of_sections}")
        find_markers = find_markers or (slim and names is None)
        with _copied_counts(section, targets[0].real.parent) as section:
            result = _fit_k(options)(
                section, options, progress, find_markers=find_markers, checkpoint=checkpoint, cluster=cluster
            )
        result = _with_own_colours(result, [file.colours for file in files])
        parts: Iterable[FitResult] = [result]
        if names is not None:
            parts = (result.part(own, file.kept) for own, file in zip(section.spots_of_samples(), files, strict=True))
        _write_files(files, parts, options, slim=slim, intervals=intervals, progress=progress)
    return result


def _read_files(
    sources: Sequence[Location],
    targets: Sequence[Location],
    names: Sequence[str] | None,
    options: FitOptions,
    *,
    slim: bool,
    intervals: bool,
    cluster: "Cluster | None",
) -> tuple[Section, list[_File]]:
    """Read one file or, with the names of their sections, several files, which are joined."""
    from spatialpdvi.io.section.joining import join_sections

    keys, sections, files = Keys(options.key_added), [], []
    for path, target, name in zip(sources, targets, [None] if names is None else names, strict=True):
        with _of_several(name), checked_file(path, target, keys, slim=slim) as source:
            section = read_inputs(source, options, cluster)
            if intervals:
                check_intervals(source, options, section.kept)
            sections.append(section)
            files.append(
                _File(
                    path, target, section.kept, read_own_colours(source, keys), keys.pairs_in(source), source.digest()
                )
            )
    return sections[0] if names is None else join_sections(sections, names), files


def _write_files(
    files: Sequence[_File],
    results: Iterable[FitResult],
    options: FitOptions,
    *,
    slim: bool,
    intervals: bool,
    progress: Progress,
) -> None:
    """Write into each file its result; an error says which had been written before."""
    from spatialpdvi.io.storage.disk import name_earlier

    keys = Keys(options.key_added)
    with name_earlier() as written:
        for file, result in zip(files, results, strict=True):
            elements = result.elements(keys, save_graph=options.save_graph)
            if intervals:
                with H5adSource(file.source) as source:
                    elements = with_intervals(
                        source, elements, keys, options.memory, remove=file.stale, progress=progress
                    )
            write_result(
                file.source,
                file.target,
                elements,
                keys,
                remove=file.stale,
                spots=file.spots,
                slim=slim,
                memory=options.memory,
                markers=result.marker_table,
                progress=progress,
            )
            written.append(file.target)


@contextmanager
def _copied_counts(section: Section, folder: Path) -> Iterator[Section]:
    """Let counts that are read block by block be decompressed once: stages after the first read a copy in ``folder``.

    Counts that the workers of a cluster read stay where they are.
    """
    if section.counts is None or isinstance(section.counts, sp.csr_matrix | SpreadRows):
        yield section
        return
    from spatialpdvi.io.formats.streaming import CopiedRows

    with closing(CopiedRows(section.counts, folder)) as counts:
        yield section._replace(counts=counts)


def _with_own_colours(result: FitResult, colours: Sequence[dict[str, str] | None]) -> FitResult:
    """Keep the colours that the user gave to the domains of an earlier fit with the same names, in all files."""
    known = colours[0]
    if known is None or list(known) != default_names(result.n_domains) or any(o != known for o in colours):
        return result
    from spatialpdvi.plotting.labels import check_colours

    try:
        return result.with_colours(check_colours(known, list(known)))
    except InputError:  # colours that cannot be drawn are not worth keeping
        return result


def _fit_k(options: FitOptions) -> Callable[..., FitResult]:
    """Return what fits one number of domains, or what chooses one from a range."""
    return fit_range if isinstance(options.k, str) else fit_section


def _check_model(section: Section, options: FitOptions) -> None:
    """Raise before a fit whose model could not be saved."""
    error = why_no_model(section, options)
    if error is not None:
        raise error
