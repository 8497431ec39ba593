"""What HDF5 and zarr have in common, and the little that has to be asked of each in its own way.

Groups of both are mappings with ``attrs``, arrays of both have ``shape``, ``dtype``, ``chunks`` and slices; past here
and `opening` nobody asks which of the two an element is of. What is not h5py's is zarr's, which need not be imported to
say so.
"""

from typing import Any

import h5py
import numpy as np
from anndata.io import read_elem

__all__ = ["close", "file_bytes", "is_array", "is_group", "is_hdf5", "is_packed", "read"]


def is_hdf5(element: Any) -> bool:
    """Whether a group or an array is of an HDF5 file."""
    return isinstance(element, h5py.Group | h5py.Dataset)


def is_group(element: Any) -> bool:
    """Whether this is a group of a file, and not an array of one or anything in memory."""
    return hasattr(element, "keys") and hasattr(element, "attrs") and not hasattr(element, "shape")


def is_array(element: Any) -> bool:
    """Whether this is an array of a file; not of a group, nor of nothing (None)."""
    return hasattr(element, "shape") and hasattr(element, "attrs")


def is_packed(array: Any) -> bool:
    """Whether the values have to be decompressed when they are read."""
    if is_hdf5(array):
        return bool(array.id.get_create_plist().get_nfilters() > 0)
    return bool(array.compressors)


def file_bytes(array: Any) -> int:
    """Bytes that an array takes in the file."""
    return int(array.id.get_storage_size() if is_hdf5(array) else array.nbytes_stored())


def close(group: Any) -> None:
    """Close the file or store whose root a group is."""
    (group if is_hdf5(group) else group.store).close()


def read(element: Any) -> Any:
    """An element as anndata reads it; texts of both are arrays of objects (of zarr they are NumPy's own texts)."""
    return _with_objects(read_elem(element))


def _with_objects(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_objects(value[key]) for key in sorted(value)}  # zarr has no order
    return value.astype(object) if isinstance(value, np.ndarray) and value.dtype.kind == "T" else value
