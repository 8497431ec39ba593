"""Files that a command reads and writes, checked before any work."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from spatialpdvi.io.results.keys import Keys, check_free

if TYPE_CHECKING:
    from spatialpdvi.io.formats.h5ad import H5adSource

__all__ = ["checked_file"]


@contextmanager
def checked_file(path: str | Path, target: str | Path, keys: Keys) -> "Iterator[H5adSource]":
    """An h5ad file or a zarr store opened for reading, whose result can be written to the target under these names."""
    from spatialpdvi.io.formats.h5ad import H5adSource
    from spatialpdvi.io.results.writing import check_output

    with H5adSource(path) as source:
        check_output(path, target)
        check_free(source, keys)
        yield source
