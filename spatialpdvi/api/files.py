"""Files that a command reads and writes, checked before any work."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spatialpdvi.io.results.keys import Keys, check_free
from spatialpdvi.io.storage.paths import Location

if TYPE_CHECKING:
    from spatialpdvi.io.formats.h5ad import H5adSource

__all__ = ["checked_file"]


@contextmanager
def checked_file(path: Location, target: Location, keys: Keys) -> "Iterator[H5adSource]":
    """Open an h5ad file or a zarr store whose results can be written to the target under these names."""
    from spatialpdvi.io.formats.h5ad import H5adSource
    from spatialpdvi.io.results.writing import check_output

    with H5adSource(path) as source:
        check_output(path, target)
        check_free(source, keys)
        yield source
