"""Files that hold results and coordinates without counts: what goes into one, and its counts from another file."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd

from spatialpdvi.errors import InputError, option
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.arrays import check_names
from spatialpdvi.io.results.keys import Keys, prefixes_in
from spatialpdvi.io.results.summary import not_ours
from spatialpdvi.io.section.counts import slim_from
from spatialpdvi.io.storage.elements import column_order, encoding_type, is_array
from spatialpdvi.io.storage.paths import AnyPath, is_same, locate, locate_all

__all__ = ["check_other_file", "counts_of_each", "opened_with_counts", "read_markers", "slim_pairs"]

_Path = TypeVar("_Path", Path, str | Path)
_AXES = {2, 3}  # columns of coordinates


def check_other_file(source_path: AnyPath, output_path: AnyPath) -> None:
    """Check that a file without counts does not replace the section from which it is made.

    Raises
    ------
    InputError
        Where both are the same file.
    """
    source, target = locate(source_path), locate(output_path)
    if is_same(source, target):
        raise InputError(
            f"another file than {source.given!r} to write to with {option('slim', True)}",
            "the same",
            f"It would lose its counts. Name another file with {option('output')}.",
        )


def slim_pairs(source: H5adSource, keys: Keys, *, rep: str | None) -> list[tuple[str, str]]:
    """Return the elements of a file that a copy without counts has, beside the whole of ``obs``.

    They are the whole of ``uns``, with the images of the tissue; what fits have written under any prefix; and from
    ``obsm`` everything with two or three columns, which maps can be drawn of.

    Parameters
    ----------
    source
        The file.
    keys
        The names of the fit that is written.
    rep
        Key of ``obsm`` of features that the fit has not stored again; None where there is no such key.
    """
    prefixes = {keys.prefix, *prefixes_in(source)}
    ours = {pair for prefix in prefixes for pair in Keys(prefix).all_pairs()}
    obsm = source.root.get("obsm", {})
    kept = [("uns", key) for key in source.uns_keys()]
    kept += [
        ("obsm", key)
        for key in source.obsm_keys()
        if _n_columns(obsm[key]) in _AXES or key == rep or ("obsm", key) in ours
    ]
    return kept + [("obsp", key) for key in source.obsp_keys() if ("obsp", key) in ours]


def _n_columns(element: Any) -> int | None:
    """The columns of an array or a data frame of a file; None for any other element."""
    if is_array(element):
        return int(element.shape[1]) if len(element.shape) == 2 else None
    return len(column_order(element)) if encoding_type(element) == "dataframe" else None


@contextmanager
def opened_with_counts(path: AnyPath, counts: AnyPath | None) -> Iterator[Source]:
    """Open a fitted file, with the genes and counts of another file of the same spots where one is given.

    Raises
    ------
    InputError
        Where a file cannot be used, or the spots are others or in another order.
    """
    with H5adSource(path) as source:
        if counts is None:
            yield source
            return
        with H5adSource(counts) as others:
            _check_spots(source, others)
            yield cast("Source", _WithCounts(source, others))


def counts_of_each(paths: Sequence[Any], counts: Sequence[_Path]) -> list[_Path | None]:
    """Return the file of the counts of each fitted file, None where none are given.

    Raises
    ------
    InputError
        Where there are counts for some of the files only, or one path is given and no list.
    """
    if not counts:
        return [None] * len(paths)
    try:
        locate_all(counts)
    except InputError as error:
        raise error.but(option="counts") from error
    if len(counts) != len(paths):
        of_each = f" for each of the {len(paths)} sections, in their order" if len(paths) != 1 else ""
        raise InputError(f"given once{of_each}", f"{len(counts)} time{'s' * (len(counts) != 1)}", option="counts")
    return list(counts)


def read_markers(source: Source, keys: Keys) -> pd.DataFrame | None:
    """Read the marker genes of the domains from a file without counts; None where it has counts or no such table.

    Raises
    ------
    InputError
        Where the table is not what a fit stores.
    """
    if slim_from(source) is None or keys.markers not in source.uns_keys():
        return None
    columns = source.uns(keys.markers)
    wanted = {"domain": "O", "gene": "O", "log_fold_change": "f", "share_in": "f", "share_out": "f"}
    arrays = {name: np.asarray(columns.get(name)) for name in wanted} if isinstance(columns, Mapping) else {}
    shapes = {array.shape for array in arrays.values()}
    right = len(shapes) == 1 and len(shapes.pop()) == 1
    if not right or any(arrays[name].dtype.kind != kind for name, kind in wanted.items()):
        raise not_ours(source, f"uns[{keys.markers!r}]", "no table of marker genes")
    check_names(source, keys, keys.markers)
    return pd.DataFrame(arrays)


def _check_spots(source: Source, counts: Source) -> None:
    names, others = np.asarray(source.obs_names()), np.asarray(counts.obs_names())
    if names.size != others.size or (names != others).any():
        first = 0 if names.size != others.size else int(np.argmax(names != others))
        found = (
            f"{others.size:,} spots instead of {names.size:,}"
            if names.size != others.size
            else f"{str(others[first])!r} instead of {str(names[first])!r} in row {first + 1:,}"
        )
        raise InputError(
            f"a file with the counts of the spots of {source.name}, in their order",
            f"{found} in {counts.name}",
            "Give the file that was fitted.",
            option="counts",
        )


class _WithCounts:
    """A source whose genes and matrices are those of another one."""

    _OF_COUNTS = frozenset(
        {
            *("n_vars", "var_names", "var_keys", "var", "layer_keys", "has_matrix", "first_values", "matrix"),
            *("stored_bytes", "by_rows", "rows"),
        }
    )

    def __init__(self, source: Source, counts: Source) -> None:
        self._source, self._counts = source, counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._counts if name in self._OF_COUNTS else self._source, name)
