"""Sections that results are written into, opened after a check that they can be."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.formats.sources import AnnDataSource, Source
from spatialpdvi.io.results.keys import Keys, check_free
from spatialpdvi.io.storage.paths import AnyPath, Location

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["checked_adata", "checked_file", "checked_fit"]


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
