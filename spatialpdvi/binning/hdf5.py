"""HDF5 files of sequencers: opened, their tables and attributes read; damage is one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from spatialpdvi.errors import InputError

__all__ = ["MAKE_AGAIN", "attribute", "group_of", "open_hdf5", "reading", "table_of", "texts"]

MAKE_AGAIN = "Make the GEF again with SAW or geftools."


def open_hdf5(path: Path, what: str) -> h5py.File:
    """The file, read-only, to be closed by the caller."""
    with reading(path, what):
        return h5py.File(path, "r")


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turn what damaged bytes make a library raise into the sentence that names the file.

    What is raised inside is of reading alone: in a generator what its user does is not inside.
    """
    try:
        yield
    except (InputError, MemoryError):
        raise
    except PermissionError as error:
        msg = f"Expected to read {str(path)!r}, found no permission to. Ask its owner for access."
        raise InputError(msg) from error
    except BlockingIOError as error:
        msg = f"Expected {str(path)!r} to be free, found it open for writing elsewhere. Close it there, then run again."
        raise InputError(msg) from error
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
        msg = f"Expected {str(path)!r} to be a complete {what}, found it truncated or damaged ({reason}). "
        raise InputError(msg + "Copy or download it again.") from error


def attribute(element: Any, name: str) -> int | None:
    """First value of an attribute, a whole number; None where there is none."""
    values = np.ravel(element.attrs.get(name, ()))
    if not values.size or values.dtype.kind not in "iuf":
        return None
    value = float(values[0])
    return int(value) if value.is_integer() and abs(value) < 2**53 else None


def group_of(parent: Any, name: str, path: Path, *, called: str) -> h5py.Group:
    """The group ``name`` of another one, for messages ``called`` so; a KeyError where there is none."""
    group = parent[name]
    if not isinstance(group, h5py.Group):
        msg = f"Expected {called} of {str(path)!r} to be a group, found a dataset. {MAKE_AGAIN}"
        raise InputError(msg)
    return group


def table_of(group: Any, name: str, numbers: tuple[str, ...], path: Path) -> h5py.Dataset:
    """The 1-D compound dataset ``name`` of a group, found to have these fields of numbers."""
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
    msg = f"Expected {where} of {str(path)!r} to be a table with {', '.join(numbers)}, found {found}. {MAKE_AGAIN}"
    raise InputError(msg)


def texts(values: np.ndarray) -> list[str]:
    """Texts of fixed or variable length as HDF5 stores them."""
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values.tolist()]
