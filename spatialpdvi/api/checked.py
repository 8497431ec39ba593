"""What is checked, opened and locked before a result is made: where it goes, the checkpoint and the cluster."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from spatialpdvi.checkpoints import Checkpoint
from spatialpdvi.errors import InputError
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.formats.sources import AnnDataSource, Source
from spatialpdvi.io.results.keys import Keys, check_free
from spatialpdvi.io.storage.paths import AnyPath, Location, locate_all
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.runtime.progress import Progress
from spatialpdvi.version import library_versions

if TYPE_CHECKING:
    from anndata import AnnData

    from spatialpdvi.distributed import Cluster

__all__ = ["checked_adata", "checked_file", "checked_fit", "exclusive_run", "fitted_files"]


def checked_adata(adata: "AnnData", keys: Keys, of_file: str, *, store: bool = True) -> AnnDataSource:
    """Return an AnnData as a source, after a check that results with these keys can be stored in it, if they are.

    The function that does the same with a file, ``of_file``, is named where a path was given.
    """
    source = AnnDataSource(adata, of_file)
    if store:
        source.check_takes_results()
        check_free(source, keys)
    return source


@contextmanager
def checked_file(path: Location, target: Location, keys: Keys, *, slim: bool = False) -> Iterator[H5adSource]:
    """Open an h5ad file or a zarr store, after a check that results with these keys can be written to the target."""
    from spatialpdvi.io.results.slim import slim_pairs
    from spatialpdvi.io.results.writing import check_output, check_parts

    with H5adSource(path) as source:
        only = slim_pairs(source, keys, rep=None) if slim else None
        check_output(path, target, only=only)
        check_free(source, keys)
        check_parts(source, path, target, only)
        yield source


@contextmanager
def checked_fit(location: Location, counts: AnyPath | None, keys: Keys, *, store: bool) -> Iterator[Source]:
    """Open a fitted file with its counts, after a check that tables can be stored in it, if they are."""
    from spatialpdvi.io.results.slim import opened_with_counts
    from spatialpdvi.io.results.writing import check_output

    with opened_with_counts(location, counts) as source:
        if store:
            check_free(source, keys)
            check_output(location, location)
        yield source


def fitted_files(paths: Sequence[AnyPath]) -> list[Location]:
    """Return the locations of fitted files, of which there must be at least one."""
    files = locate_all(paths)
    if not files:
        raise InputError("at least one fitted file", "none", "Give the path of one.")
    return files


@contextmanager
def exclusive_run(
    checkpoint: Checkpoint | None,
    cluster: "Cluster | None",
    options: FitOptions,
    progress: Progress,
    *outputs: Location,
) -> Iterator[None]:
    """Lock the outputs and the checkpoint. Open the checkpoint, and remove it if the fit succeeds."""
    from spatialpdvi.io.storage.locks import claimed
    from spatialpdvi.io.storage.outputs import check_distinct

    if not isinstance(checkpoint, Checkpoint | None):
        advice = f"Give spatialpdvi.Checkpoint({str(checkpoint)!r})."
        raise InputError("a spatialpdvi.Checkpoint", repr(checkpoint), advice, option="checkpoint")
    if cluster is not None:
        _check_cluster(cluster)
    with claimed(*outputs, None if checkpoint is None else checkpoint.folder):
        if checkpoint is not None:
            checkpoint.open(options, library_versions(), progress)
            check_distinct(checkpoint.folder, "checkpoint", outputs)
        yield
        if checkpoint is not None and not checkpoint.keep:
            checkpoint.close()


def _check_cluster(cluster: Any) -> None:
    from spatialpdvi.distributed import Cluster

    if not isinstance(cluster, Cluster):
        found = repr(cluster) if isinstance(cluster, str) else f"an object of type {type(cluster).__name__}"
        address = repr(cluster) if isinstance(cluster, str) else "client.scheduler.address"
        advice = f"Fit inside `with spatialpdvi.distributed.connect({address}) as cluster:`."
        raise InputError("what spatialpdvi.distributed.connect yields", found, advice, option="cluster")
