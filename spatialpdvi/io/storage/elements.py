"""What HDF5 and zarr have in common, and the few things that differ between them.

Groups of both are mappings with ``attrs``; arrays of both have ``shape``, ``dtype``, ``chunks`` and slices. Whatever
is not an object of h5py is one of zarr, which need not be imported to find out (`is_hdf5`).
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
from anndata import OldFormatWarning, settings
from anndata.io import read_elem, write_elem

__all__ = [
    "AS_ANNDATA",
    "AS_DICT",
    "close",
    "column_order",
    "encoding",
    "encoding_type",
    "is_array",
    "is_group",
    "is_hdf5",
    "is_packed",
    "quiet",
    "read",
    "read_column",
    "write",
]

# attributes of groups that are made here and filled by and by, as anndata writes them
AS_ANNDATA = {"encoding-type": "anndata", "encoding-version": "0.1.0"}
AS_DICT = {"encoding-type": "dict", "encoding-version": "0.1.0"}


def is_hdf5(element: Any) -> bool:
    """Whether a group or an array belongs to an HDF5 file."""
    return isinstance(element, h5py.Group | h5py.Dataset)


def is_group(element: Any) -> bool:
    """Whether this is a group of a file, and neither an array of a file nor anything in memory."""
    return hasattr(element, "keys") and hasattr(element, "attrs") and not hasattr(element, "shape")


def is_array(element: Any) -> bool:
    """Whether this is an array of a file; False for a group and for None."""
    return hasattr(element, "shape") and hasattr(element, "attrs")


def is_packed(array: Any) -> bool:
    """Whether the values have to be decompressed when they are read."""
    if is_hdf5(array):
        return bool(array.id.get_create_plist().get_nfilters() > 0)
    return bool(array.compressors)


def close(group: Any) -> None:
    """Close the file or store whose root is this group."""
    (group if is_hdf5(group) else group.store).close()


@contextmanager
def quiet() -> Iterator[None]:
    """Hide warnings of anndata and zarr that a user of this package need not act on.

    They are about the age of an element, about files of other programs in a zarr store (``.DS_Store``), and about the
    codec of texts, which the specification of zarr's format 3 did not have yet when the first versions already used it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OldFormatWarning)
        warnings.filterwarnings("ignore", "Object at .* is not recognized as a component", UserWarning)
        warnings.filterwarnings("ignore", "The codec `vlen-utf8` is currently not part", UserWarning)
        yield


def read(element: Any) -> Any:
    """Read an element as anndata does; arrays of texts are arrays of objects, also from zarr."""
    return _with_objects(read_elem(element))


def write(group: Any, key: str, value: Any, **packing: Any) -> None:
    """Write an element as anndata does, also texts that may be missing, which `read` may return.

    Options of the arrays, such as their compression, are named as h5py and zarr name them.
    """
    allowed = {name: True for name in ("allow_write_nullable_strings",) if hasattr(settings, name)}
    with settings.override(**allowed):
        if isinstance(value, Mapping) and not is_hdf5(group) and key not in group:
            _write_at_once(group, key, value)
        else:
            write_elem(group, key, value, dataset_kwargs=packing)


def _write_at_once(group: Any, key: str, value: Mapping[str, Any]) -> None:
    """Write a dict into a zarr store on disk by way of one in memory, whose files are then written.

    Element by element, a hundred small ones take three times as long.
    """
    from zarr import open_group
    from zarr.storage import MemoryStore

    files: dict[str, Any] = {}
    write_elem(open_group(MemoryStore(files), mode="w", zarr_format=group.metadata.zarr_format), key, value)
    folder = Path(group.store.root, group.path)
    for name, content in files.items():
        if name.startswith(f"{key}/"):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # what is left of a damaged element may have a second name in another store
            path.write_bytes(content.to_bytes())


def encoding(element: Any) -> dict[str, str]:
    """Return the attributes by which anndata knows an element: its type and the version of that, where it has them."""
    names = ("encoding-type", "encoding-version")
    return {name: _text(element.attrs[name]) for name in names if name in element.attrs}


def encoding_type(element: Any) -> str:
    """Return the type that anndata gives to an element; empty where it has none."""
    return encoding(element).get("encoding-type", "")


def column_order(table: Any) -> list[str]:
    """Return the columns of a table in order."""
    return list(map(_text, table.attrs.get("column-order", ())))


def _text(attribute: Any) -> str:
    """The text of an attribute; programs in other languages write it as bytes."""
    return attribute.decode() if isinstance(attribute, bytes) else str(attribute)


def read_column(table: Any, key: str) -> Any:
    """Read a column of a table."""
    column = table[key]
    # Files of anndata 0.7 hold the categories elsewhere and refer to them, those of SeuratDisk without a reference.
    held = table.get("__categories", {})
    if "categories" in column.attrs:
        codes, categories = column[()], table[column.attrs["categories"]]
    elif is_array(column) and column.dtype.kind in "iu" and key in held:
        codes, categories = column[()].astype(np.int64), held[key]
        codes[codes < 0] = -1  # of R, the least whole number
    else:
        return read(column)
    ordered = bool(categories.attrs.get("ordered", False))
    return pd.Categorical.from_codes(codes, read(categories), ordered=ordered)


def _with_objects(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_objects(value[key]) for key in sorted(value)}  # zarr has no order
    return value.astype(object) if isinstance(value, np.ndarray) and value.dtype.kind == "T" else value
