"""An HDF5 file opened as an h5ad, or a zarr store as an AnnData, or one sentence that says why it is none."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import h5py

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats.legacy import is_table, quiet
from spatialpdvi.io.storage.elements import close, is_group, is_hdf5
from spatialpdvi.io.storage.temporary import remove_abandoned

__all__ = ["open_file", "open_h5ad", "open_zarr", "opened"]

# What results are written into: found to be no groups only after the fit, they would cost its time.
_GROUPS = ("obsm", "obsp", "uns")


def open_file(path: str | Path) -> Any:
    """Root group of an h5ad or of an AnnData in a zarr store, read-only; `elements.close` closes it."""
    path = Path(path)
    is_folder = False
    with suppress(OSError):  # where nobody may look, `open_h5ad` says so
        if path.suffix == ".zarr" and not os.path.lexists(path) and path.parent.is_dir():
            remove_abandoned(path.parent)  # a process that was killed may have left it under another name
        is_folder = path.is_dir()
    return open_zarr(path) if is_folder else open_h5ad(path)


@contextmanager
def opened(path: str | Path) -> Iterator[Any]:
    """`open_file` until the ``with`` ends."""
    file = open_file(path)
    try:
        yield file
    finally:
        close(file)


def open_zarr(path: str | Path) -> Any:
    """Open an AnnData in a zarr store read-only, or say in one sentence why that cannot be done."""
    from spatialpdvi.io.storage.zarr_stores import StoreError, open_store

    path = Path(path)
    try:
        store = open_store(path)
    except StoreError as error:
        msg = f"Expected {_show(path)} to be a zarr store of an AnnData, found {error.found}. {error.hint}"
        raise InputError(msg) from error
    except PermissionError as error:
        msg = f"Expected to read {_show(path)}, found no permission to read all of it. Ask its owner for access."
        raise InputError(msg) from error
    except MemoryError:
        raise
    # Whatever damaged metadata make zarr raise, the store is to blame.
    except Exception as error:
        raise _damaged(path, "zarr store") from error
    _check(store, path, "zarr store")
    return store


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
        raise _damaged(path, "h5ad file") from error
    _check(file, path, "h5ad file")
    return file


def _check(file: Any, path: Path, what: str) -> None:
    try:
        with quiet():
            _check_anndata(file, path)
    except (InputError, MemoryError):
        close(file)
        raise
    # Whatever damaged bytes make h5py or zarr raise, the file is to blame.
    except Exception as error:
        close(file)
        raise _damaged(path, what) from error


def _damaged(path: Path, what: str) -> InputError:
    msg = f"Expected {_show(path)} to be a complete {what}, found it truncated or damaged. "
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
        first = stream.read(2)
    if first == b"\x1f\x8b":
        return "a gzip-compressed file", "Uncompress it first (gunzip)."
    if first == b"PK":
        return "a zip archive", "Unpack it first (unzip)."
    return "a file that is not HDF5", "Write your data with AnnData.write_h5ad."


def _check_anndata(file: Any, path: Path) -> None:
    kind = "an HDF5 file" if is_hdf5(file) else "a zarr store"
    hint = f"Write your data with AnnData.write_{'h5ad' if is_hdf5(file) else 'zarr'}."
    if "mod" in file:
        found, hint = "a MuData of several modalities", "Write one modality as h5ad."
    elif "tables" in file:
        found = "a SpatialData store without a table"
    elif "matrix" in file:
        found, hint = "another kind of HDF5 file (10x or loom)", f"Read it with scanpy. {hint}"
    elif {"geneExp", "cellBin"} & set(file):
        found, hint = "a GEF of Stereo-seq", "Make an AnnData of it with `spatialpdvi bin`."
    elif not {"obs", "var"} <= set(file):
        found = f"{kind} without obs and var"
    elif not all(_is_frame(file[name]) for name in ("obs", "var")):
        found = f"{kind} whose obs or var is no table"
    elif strange := [name for name in _GROUPS if name in file and not _is_group(file[name])]:
        found = f"{kind} whose {strange[0]} is a single value or array"
    else:
        return
    msg = f"Expected {_show(path)} to hold an AnnData, found {found}. {hint}"
    raise InputError(msg)


def _is_frame(element: Any) -> bool:
    if is_group(element):
        return element.attrs.get("_index", "?") in element
    return is_table(element)


def _is_group(element: Any) -> bool:
    return is_group(element) or is_table(element)


def _show(path: Path) -> str:
    return repr(str(path))
