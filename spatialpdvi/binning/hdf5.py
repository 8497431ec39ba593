"""Open HDF5 files of sequencing software, and read their tables and attributes; damage is an `InputError`."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from spatialpdvi.errors import InputError
from spatialpdvi.io.storage.damage import reading_file

__all__ = ["MAKE_AGAIN", "frame_facts", "group_of", "open_hdf5", "table_of", "texts"]

MAKE_AGAIN = "Make the GEF again with SAW or geftools."


def open_hdf5(path: Path, what: str) -> h5py.File:
    """Open a file read-only; the caller closes it."""
    with reading_file(path, what):
        return h5py.File(path, "r")


def frame_facts(element: Any, offset: tuple[str, str], file: h5py.File) -> dict[str, Any]:
    """Return what a GEF says about its frame, as far as it does.

    Parameters
    ----------
    element
        The group or dataset that has the offset and the resolution as attributes.
    offset
        The names of the two attributes of the offset.
    file
        The file, which has the version.

    Returns
    -------
    dict
        The ``offset`` of the frame on the chip in DNBs, ``resolution_nm`` and ``format_version``.
    """
    found: dict[str, Any] = {}
    place = [_whole_attribute(element, name) for name in offset]
    if None not in place:
        found["offset"] = np.array(place, dtype=np.int64)
    resolution, version = _whole_attribute(element, "resolution"), _whole_attribute(file, "version")
    found |= {"resolution_nm": resolution} if resolution else {}
    return found | ({"format_version": version} if version is not None else {})


def _whole_attribute(element: Any, name: str) -> int | None:
    """Return the first value of an attribute if it is a whole number, else None."""
    values = np.ravel(element.attrs.get(name, ()))
    if not values.size or values.dtype.kind not in "iuf":
        return None
    value = float(values[0])
    return int(value) if value.is_integer() and abs(value) < 2**53 else None


def group_of(parent: Any, name: str, path: Path, *, called: str) -> h5py.Group:
    """Return the group ``name`` of another group, named ``called`` in errors; a KeyError says that there is none."""
    group = parent[name]
    if not isinstance(group, h5py.Group):
        raise InputError(
            f"{called} of {str(path)!r} to be a group",
            "a dataset",
            MAKE_AGAIN,
        )
    return group


def table_of(group: Any, name: str, numbers: tuple[str, ...], path: Path) -> h5py.Dataset:
    """Return the 1-D compound dataset ``name`` of a group after checking that it has these fields of numbers."""
    dataset = group.get(name)
    where = f"{group.name.rstrip('/')}/{name}"
    if not isinstance(dataset, h5py.Dataset):
        found = "nothing of that name" if dataset is None else "a group"
    elif dataset.ndim != 1 or dataset.dtype.names is None:
        found = f"values of type {dataset.dtype} in {dataset.ndim} dimensions"
    elif missing := [field for field in numbers if field not in dataset.dtype.names]:
        found = f"no field {', '.join(missing)} in it, but {', '.join(dataset.dtype.names)}"
    elif strange := [field for field in numbers if dataset.dtype[field].kind not in "iuf"]:
        found = f"{dataset.dtype[strange[0]]} in its field {strange[0]}"
    else:
        return dataset
    raise InputError(
        f"{where} of {str(path)!r} to be a table with {', '.join(numbers)}",
        found,
        MAKE_AGAIN,
    )


def texts(values: np.ndarray) -> list[str]:
    """Return texts of fixed or variable length that were read from HDF5."""
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values.tolist()]
