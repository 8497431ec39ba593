"""Tables of h5ad files as other times and tools write them.

Before anndata 0.7 a table was one compound dataset; today it is a group of columns.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np
import pandas as pd
from anndata import OldFormatWarning
from anndata.io import write_elem

from spatialpdvi.io.storage.elements import read

__all__ = [
    "column_order",
    "is_table",
    "legacy_bytes",
    "modernise",
    "quiet",
    "read_column",
    "read_fields",
    "read_table",
]

_FRAMES, _ARRAYS = ("obs", "var"), ("obsm", "varm")
_VALUE = 64  # bytes of a value of a table as an element of today: a short text with its place in HDF5's heap


@contextmanager
def quiet() -> Iterator[None]:
    """Read without warnings that its reader of today has no need to act on.

    Of the age of the file, of files of other programs in a zarr store (``.DS_Store``), and that zarr's format 3 did not
    tell how texts are kept when its first versions already wrote them, as anndata and all others do.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OldFormatWarning)
        warnings.filterwarnings("ignore", "Object at .* is not recognized as a component", UserWarning)
        warnings.filterwarnings("ignore", "The codec `vlen-utf8` is currently not part", UserWarning)
        yield


def is_table(element: Any) -> bool:
    """Whether an element is such a dataset, with named fields."""
    return isinstance(element, h5py.Dataset) and element.dtype.names is not None


def column_order(group: h5py.Group) -> list[str]:
    """Columns of a table of today, in order; other languages write their names as bytes."""
    names = group.attrs.get("column-order", ())
    return [name.decode() if isinstance(name, bytes) else str(name) for name in names]


def read_fields(dataset: h5py.Dataset) -> dict[str, np.ndarray]:
    """The fields of a table of arrays (``obsm``), each (n, width)."""
    records = read(dataset)
    fields = {name: records[name] for name in records.dtype.names}
    return {name: value.reshape(len(value), -1) for name, value in fields.items()}


def read_table(file: h5py.File, name: str) -> pd.DataFrame:
    """``obs``, ``var`` or ``raw.var``: first field the names, codes turned into categories."""
    records = read(file[name])
    index, *columns = records.dtype.names
    frame = {column: _categorical(file, column, records[column]) for column in columns}
    names = pd.Index(records[index].astype(str), dtype=object, name=index)
    return pd.DataFrame(frame, index=names, columns=columns)


def read_column(group: Any, key: str) -> Any:
    """A column of a table of today."""
    column = group[key]
    if "categories" not in column.attrs:
        return read(column)
    # Files of anndata 0.7 keep the categories apart and refer to them.
    categories = group[column.attrs["categories"]]
    ordered = bool(categories.attrs.get("ordered", False))
    return pd.Categorical.from_codes(column[()], read(categories), ordered=ordered)


def modernise(file: h5py.File) -> None:
    """Rewrite the tables of an open file as the groups that today's elements can be added to.

    The values stay. ``uns['<column>_categories']`` stays as well, for other tables may need it.
    """
    frames = {name: read_table(file, name) for name in _FRAMES if is_table(file.get(name))}
    arrays = {name: read_fields(file[name]) for name in _ARRAYS if is_table(file.get(name))}
    for name, value in (frames | arrays).items():
        del file[name]
        write_elem(file, name, value)


def legacy_bytes(file: h5py.File) -> int:
    """Bytes that `modernise` adds to a file, a generous estimate in which texts are taken to be short."""
    tables = [file[name] for name in (*_FRAMES, *_ARRAYS) if is_table(file.get(name))]
    return sum(2 * table.size * table.dtype.itemsize + _VALUE * table.size * len(table.dtype) for table in tables)


def _categorical(file: h5py.File, column: str, values: np.ndarray) -> np.ndarray | pd.Categorical:
    key = f"uns/{column}_categories"
    if values.dtype.kind not in "iu" or key not in file:
        return values
    # A single category was stored without its brackets.
    categories = np.atleast_1d(read(file[key]))
    if len(values) and values.max() >= len(categories):
        return values  # the categories of a column of the same name in the other table
    return pd.Categorical.from_codes(values, categories)
