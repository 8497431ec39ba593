"""An HDF5 file opened as an h5ad, or one sentence that says why it is none."""

import os
import stat
from pathlib import Path
from typing import Any

import h5py

from spatialpdvi.errors import InputError
from spatialpdvi.io.legacy import is_table

__all__ = ["open_h5ad"]

# What results are written into: found to be no groups only after the fit, they would cost its time.
_GROUPS = ("obsm", "obsp", "uns")


def open_h5ad(path: str | Path) -> h5py.File:
    """Open an h5ad read-only, or say in one sentence why that cannot be done."""
    path = Path(path)
    _check_regular(path)
    try:
        file = h5py.File(path, "r")
    except BlockingIOError as error:
        msg = f"Expected {_show(path)} to be free, found it open for writing elsewhere. "
        msg += "Close it there (a notebook, another program), then run again."
        raise InputError(msg) from error
    except OSError as error:
        raise _damaged(path) from error
    try:
        _check_anndata(file, path)
    except (InputError, MemoryError):
        file.close()
        raise
    # Whatever damaged bytes make h5py raise, the file is to blame.
    except Exception as error:
        file.close()
        raise _damaged(path) from error
    return file


def _damaged(path: Path) -> InputError:
    msg = f"Expected {_show(path)} to be a complete h5ad file, found it truncated or damaged. "
    return InputError(msg + "Copy or download it again.")


def _check_regular(path: Path) -> None:
    hint = "Check the path for a typing error."
    try:
        mode = path.stat().st_mode
    except PermissionError:
        found, hint = "no permission to read it", "Ask its owner for access."
    except (OSError, ValueError):  # ValueError: a null character in the name
        found = "no such file"
    else:
        if stat.S_ISDIR(mode):
            found, hint = "a folder", "Name the h5ad file in it."
        elif not stat.S_ISREG(mode):
            found, hint = "a pipe or device", "Save the data as a file first."
        elif not os.access(path, os.R_OK):
            found, hint = "no permission to read it", "Ask its owner for access."
        elif path.stat().st_size == 0:
            found, hint = "an empty file", "Copy or download it again."
        elif not h5py.is_hdf5(path):
            found, hint = _not_hdf5(path)
        else:
            return
    msg = f"Expected {_show(path)} to be an h5ad file, found {found}. {hint}"
    raise InputError(msg)


def _not_hdf5(path: Path) -> tuple[str, str]:
    with path.open("rb") as stream:
        gzipped = stream.read(2) == b"\x1f\x8b"
    if gzipped:
        return "a gzip-compressed file", "Uncompress it first (gunzip)."
    return "a file that is not HDF5", "Write your data with AnnData.write_h5ad."


def _check_anndata(file: h5py.File, path: Path) -> None:
    hint = "Write your data with AnnData.write_h5ad."
    if "mod" in file:
        found, hint = "a MuData of several modalities", "Write one modality as h5ad."
    elif "matrix" in file:
        found, hint = "another kind of HDF5 file (10x or loom)", f"Read it with scanpy. {hint}"
    elif not {"obs", "var"} <= set(file):
        found = "an HDF5 file without obs and var"
    elif not all(_is_frame(file[name]) for name in ("obs", "var")):
        found = "an HDF5 file whose obs or var is no table"
    elif strange := [name for name in _GROUPS if name in file and not _is_group(file[name])]:
        found = f"an HDF5 file whose {strange[0]} is a single value or array"
    else:
        return
    msg = f"Expected {_show(path)} to hold an AnnData, found {found}. {hint}"
    raise InputError(msg)


def _is_frame(element: Any) -> bool:
    if isinstance(element, h5py.Group):
        return element.attrs.get("_index", "?") in element
    return is_table(element)


def _is_group(element: Any) -> bool:
    return isinstance(element, h5py.Group) or is_table(element)


def _show(path: Path) -> str:
    return repr(str(path))
