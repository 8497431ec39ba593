"""Open an HDF5 file as an h5ad, or a zarr store as an AnnData; an error says why it is neither."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py

from spatialpdvi.errors import InputError, ResourceError
from spatialpdvi.io.storage.damage import reading_file
from spatialpdvi.io.storage.elements import close, is_group, is_hdf5, quiet
from spatialpdvi.io.storage.paths import check_readable

__all__ = ["open_file", "opened"]

# Groups into which results are written: if one of them is no group, it is better to know before the fit.
_GROUPS = ("obsm", "obsp", "uns")
_DAMAGED = "it truncated or damaged"


def open_file(path: Path) -> Any:
    """Open an h5ad file, or an AnnData in a zarr store, read-only.

    Returns
    -------
    The root group, which `spatialpdvi.io.storage.elements.close` closes.

    Raises
    ------
    InputError
        Where it is not an AnnData, is damaged or cannot be read.
    """
    try:
        is_folder = path.is_dir()
    except OSError:  # no permission: reported as for a file
        is_folder = False
    return _open_zarr(path) if is_folder else _open_h5ad(path)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """`open_file` until the ``with`` block ends."""
    file = open_file(path)
    try:
        yield file
    finally:
        close(file)


def _open_zarr(path: Path) -> Any:
    from spatialpdvi.io.storage.zarr_stores import StoreError, open_store

    with reading_file(path, "zarr store", _DAMAGED):
        try:
            store = open_store(path)
        except StoreError as error:
            raise InputError(f"{_show(path)} to be a zarr store of an AnnData", error.found, error.advice) from error
        except PermissionError as error:
            problem = f"There is no permission to read all of the zarr store {_show(path)}."
            raise ResourceError(problem, "Ask its owner for access.") from error
        return _checked(store, path)


def _open_h5ad(path: Path) -> h5py.File:
    check_readable(path)
    if not h5py.is_hdf5(path):
        raise InputError(f"{_show(path)} to be an h5ad file", *_not_hdf5(path))
    with reading_file(path, "h5ad file", _DAMAGED):
        return _checked(h5py.File(path, "r"), path)


def _checked(file: Any, path: Path) -> Any:
    """Return the root group itself; it is closed where it is no AnnData."""
    try:
        with quiet():
            _check_anndata(file, path)
    except BaseException:
        close(file)
        raise
    return file


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
    advice = f"Write your data with AnnData.write_{'h5ad' if is_hdf5(file) else 'zarr'}."
    if "mod" in file:
        found, advice = "a MuData of several modalities", "Write one modality as h5ad."
    elif "tables" in file or "spatialdata_attrs" in file.attrs:
        found = "a SpatialData store without a table"
        advice = "Add one with the counts of its spots or cells, such as `spatialdata.aggregate` makes of transcripts."
    elif "matrix" in file:
        found, advice = "another kind of HDF5 file (10x or loom)", f"Read it with scanpy. {advice}"
    elif {"geneExp", "cellBin"} & set(file):
        found, advice = "a GEF of Stereo-seq", "Make an AnnData of it with `spatialpdvi bin`."
    elif {"exp_matrix", "position", "genes", "cells"} <= set(file):
        found = "one that stereopy wrote in its own format"
        advice = (
            "Convert it with stereopy: `data = stereo.io.read_stereo_h5ad(old)`, then "
            "`stereo.io.stereo_to_anndata(data, flavor='scanpy', output=new)`."
        )
    elif not {"obs", "var"} <= set(file):
        found = f"{kind} without obs and var"
    elif any(_is_of_old_anndata(file[name]) for name in ("obs", "var")):
        found = "one that anndata before version 0.7 wrote"
        advice = "Convert it with anndata 0.7 to 0.12: `anndata.read_h5ad(old).write_h5ad(new)`."
    elif not all(_is_table(file[name]) for name in ("obs", "var")):
        found = f"{kind} whose obs or var is no table"
    elif strange := [name for name in _GROUPS if name in file and not is_group(file[name])]:
        found = f"{kind} whose {strange[0]} is a single value or array"
    else:
        return
    raise InputError(f"{_show(path)} to hold an AnnData", found, advice)


def _is_of_old_anndata(element: Any) -> bool:
    """Whether a table is one dataset with named fields, as before anndata 0.7; today it is a group of columns."""
    return isinstance(element, h5py.Dataset) and element.dtype.names is not None


def _is_table(element: Any) -> bool:
    return is_group(element) and element.attrs.get("_index", "?") in element


def _show(path: Path) -> str:
    return repr(str(path))
